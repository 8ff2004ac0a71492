"""The base of both conformance kits: scenarios are tests, and each has a promise and may be
declined with a reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar

import pytest

_PREFIX = "test_"


class Scenarios:
    """A kit is a class that names its groups of scenarios and this one last: `class
    Conformance(Paying, Refunds, Scenarios)`.
    """

    distributions: ClassVar[tuple[str, ...]] = ()
    """Further distributions for the report to name with their versions, such as the shop's
    framework.
    """

    declined: ClassVar[Mapping[str, str]] = {}
    """Scenarios that do not hold, by name without `test_`, each with the reason. A declined
    scenario that holds is a failure.
    """

    def __init_subclass__(cls, **arguments: Any) -> None:
        """Refuse to decline an unknown scenario, or to decline without a reason."""
        super().__init_subclass__(**arguments)
        for name, reason in cls.declined.items():
            if name not in cls.scenarios():
                raise TypeError(
                    f"{cls.__name__}.declined: {name!r} is not a scenario; the scenarios are "
                    f"{', '.join(cls.scenarios())}",
                )
            if not reason.strip():
                raise TypeError(f"{cls.__name__}.declined: {name!r} needs a reason")

    @classmethod
    def kit(cls) -> type[Scenarios]:
        """Return the kit of a class of tests, which holds the scenarios as they were written."""
        return next(one for one in cls.__mro__ if Scenarios in one.__bases__)

    @classmethod
    def groups(cls) -> tuple[type, ...]:
        """Return the groups of the scenarios of the kit."""
        return cls.kit().__bases__[:-1]

    @classmethod
    def scenarios(cls) -> dict[str, str]:
        """Return the name of every scenario and its promise, in order."""
        tests = {
            name: test
            for group in cls.groups()
            for name, test in vars(group).items()
            if name.startswith(_PREFIX)
        }
        return {
            name.removeprefix(_PREFIX): " ".join((test.__doc__ or "").split())
            for name, test in tests.items()
        }

    @classmethod
    def decline_if_asked(
        cls,
        request: pytest.FixtureRequest,
        more: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Expect the scenario that is about to run to fail, if the class declines it, or `more`
        does.
        """
        if reason := {**more, **cls.declined}.get(request.node.originalname.removeprefix(_PREFIX)):
            request.applymarker(pytest.mark.xfail(reason=reason, strict=True))
