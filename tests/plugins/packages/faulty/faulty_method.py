"""Methods that cannot be used, of a module that prints."""

from engines.methods.options import Option
from engines.methods.origins import OUTPUT
from engines.methods.spec import MethodSpec

print("faulty methods are imported")
_DRAFTER = "engines.methods.drafter:Drafter"
MISTYPED = MethodSpec(id="mistyped", title="Mistyped", summary="-", source="-", drafter=_DRAFTER, origins=(OUTPUT))
RANGED = MethodSpec(
    id="ranged", title="Ranged", summary="-", source="-", drafter=_DRAFTER, options=(Option("n", 9, "Size.", 1, 8),))


class Unsayable(Exception):
    """Its text cannot be made."""

    def __str__(self) -> str:
        return self.text


def __getattr__(name: str) -> MethodSpec:
    if name == "LEAVING":
        raise BaseException("nobody is to catch this")
    raise Unsayable if name == "UNSAYABLE" else AttributeError(name)
