"""The module of an index whose library fails halfway, and of 99 keys takes a minute to do so."""

import time

INDEX = None


def library():
    return "0"


def settings(keys):
    return {"seconds": 60 if keys == 99 else 0}


def build(keys, folder, settings):
    (folder / "half").write_bytes(b"written")
    time.sleep(settings["seconds"])
    raise RuntimeError("no index today")
