"""An index whose library fails halfway, and of 99 keys takes a minute to do so."""

import time

from engines.datastores.search.ann_libraries import LibraryIndex


class BrokenIndex(LibraryIndex):
    package = "numpy"

    @staticmethod
    def settings(keys):
        return {"seconds": 60 if keys == 99 else 0}

    @staticmethod
    def build(keys, folder, settings):
        (folder / "half").write_bytes(b"written")
        time.sleep(settings["seconds"])
        raise RuntimeError("no index today")
