"""Settings as records: each field is declared once, with its sentence, its default and its range.

From the fields follow the keyword parameters of Python functions (`accept_fields`), the options of commands, the tables
of the settings file, the inputs of tools, and the page of settings in the docs.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from operator import index
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    NamedTuple,
    ParamSpec,
    Protocol,
    Self,
    TypeVar,
    get_args,
    get_origin,
    overload,
)

import msgspec
from msgspec import Meta, Struct, StructMeta

from ragfault.model.errors import UnknownName, UsageError

Fields = ParamSpec("Fields")
Value = TypeVar("Value")
Record = TypeVar("Record")
First = TypeVar("First")
Second = TypeVar("Second")
Third = TypeVar("Third")
Result = TypeVar("Result")
Record_contra = TypeVar("Record_contra", contravariant=True)
First_contra = TypeVar("First_contra", contravariant=True)
Second_contra = TypeVar("Second_contra", contravariant=True)
Third_contra = TypeVar("Third_contra", contravariant=True)
Result_co = TypeVar("Result_co", covariant=True)

NonEmptyText = Annotated[str, Meta(min_length=1, description="a text")]
PathText = Annotated[str, Meta(min_length=1, description="a text", extra={"path": True})]
TextList = Annotated[str | list[str], Meta(description="a text or a list of texts")]
Switch = Annotated[bool, Meta(description="true or false")]
PositiveInt = Annotated[int, Meta(ge=1, description="a whole number, 1 or more")]
SeveralInt = Annotated[int, Meta(ge=2, description="a whole number, 2 or more")]
NaturalInt = Annotated[int, Meta(ge=0, description="a whole number, 0 or more")]
PositiveNumber = Annotated[float, Meta(gt=0, description="a number above 0")]
ClosedShare = Annotated[float, Meta(ge=0, le=1, description="a number from 0 to 1")]
OpenShare = Annotated[float, Meta(gt=0, lt=1, description="a number between 0 and 1")]
"""Forms: how a value is written outside of Python, its range, and the words for both. A `Literal` is a form, too."""


class Flag(NamedTuple):
    """How a field is shown as an option of a command."""

    names: tuple[str, ...] = ()
    """Flags; empty: the name of the field with hyphens."""
    metavar: str | None = None
    """Placeholder of the value."""
    default: str | None = None
    """Words for the default; None: the default itself."""
    parse: Callable[[Any], Any] | None = None
    """Function that reads the text of the flag, or all texts of a repeatable one; None: by the form."""


PLAIN_FLAG = Flag()
"""A flag that follows from the field."""


class Setting(NamedTuple):
    """Declaration of one field of a record of settings."""

    default: Any
    sentence: str
    """What the field sets. Another field, in backquotes, is shown as its flag on the command line."""
    form: Any
    """What a value is read as outside of Python, such as `PositiveInt`; None: only Python can set the field."""
    flag: Flag | None
    """None: no command has an option for it."""
    is_key: bool
    """The settings file may set the field."""

    @property
    def bounds(self) -> Meta | None:
        """The range of a number, and the words for it."""
        return self.form.__metadata__[0] if get_origin(self.form) is Annotated else None

    @property
    def kind(self) -> Any:
        """The type that a value is read as: `int`, `float`, `str`, a `Literal`."""
        return get_args(self.form)[0] if get_origin(self.form) is Annotated else self.form

    @property
    def choices(self) -> tuple[str, ...]:
        """The values to choose from; empty for any other form."""
        return get_args(self.form) if get_origin(self.form) is Literal else ()

    @property
    def words(self) -> str:
        """The form in words: "a whole number, 1 or more"."""
        if self.choices:
            *others, last = (f'"{choice}"' for choice in self.choices)
            return f"{', '.join(others)} or {last}" if others else last
        return (self.bounds and self.bounds.description) or "a value"


def declare(
    default: Value, sentence: str, form: Any = None, flag: Flag | None = PLAIN_FLAG, *, is_key: bool = True
) -> Value:
    """Declare a field of a record of settings; the arguments are the fields of `Setting`."""
    setting: Any = Setting(default, sentence, form, flag if form is not None else None, is_key and form is not None)
    return setting  # type: ignore[no-any-return]  # the metaclass puts the default in its place


class SettingsMeta(StructMeta):
    """Metaclass that keeps the declarations of the fields, and gives msgspec their defaults."""

    def __new__(mcls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **terms: Any) -> type:
        own = {key: value for key, value in namespace.items() if isinstance(value, Setting)}
        inherited = {key: value for base in bases for key, value in getattr(base, "declared", {}).items()}
        defaults = {key: setting.default for key, setting in own.items()}
        return super().__new__(mcls, name, bases, {**namespace, **defaults, "declared": inherited | own}, **terms)


class Settings(Struct, metaclass=SettingsMeta, frozen=True, kw_only=True):
    """Base of records of settings, whose numbers and choices are checked when one is made.

    >>> class Resampling(Settings, frozen=True, kw_only=True):
    ...     seed: int = declare(0, "Seed of the resampling.", NaturalInt)
    >>> Resampling(seed=7)
    Resampling(seed=7)
    >>> Resampling(seed=-1)
    Traceback (most recent call last):
    ragfault.model.errors.UsageError: seed is a whole number, 0 or more, not -1.
    """

    declared: ClassVar[Mapping[str, Setting]]
    """Name of each field → its declaration, those of the records that it extends first."""

    def __post_init__(self) -> None:
        for name, setting in self.declared.items():
            check_setting(name, setting, getattr(self, name))

    @classmethod
    def select(cls, other: Settings) -> Self:
        """Return a record with the values that another has for its fields."""
        return cls(**{name: getattr(other, name) for name in cls.declared if name in other.declared})


def check_setting(name: str, setting: Setting, value: Any) -> None:
    """Raise UsageError for a number out of its range, UnknownName for a choice that does not exist."""
    if value is None or value is setting.default:
        return
    if setting.choices:
        if value not in setting.choices:
            raise UnknownName(f"value of {name}", str(value), setting.choices)
    elif setting.kind in (int, float):
        try:
            # Numbers of numpy count as numbers; True is not one.
            number = value if isinstance(value, bool) else index(value) if setting.kind is int else float(value)
            msgspec.convert(number, setting.form)
        except (msgspec.ValidationError, TypeError, ValueError):
            raise UsageError(f"{name} is {setting.words}, not {value!r}.") from None


class FunctionOfOne(Protocol[First_contra, Record_contra, Fields, Result_co]):
    """Function of one argument and of settings: a record, or its fields as keywords."""

    @overload
    def __call__(self, first: First_contra, /, settings: Record_contra) -> Result_co: ...
    @overload
    def __call__(self, first: First_contra, /, *args: Fields.args, **fields: Fields.kwargs) -> Result_co: ...


class FunctionOfTwo(Protocol[First_contra, Second_contra, Record_contra, Fields, Result_co]):
    """Function of two arguments and of settings: a record, or its fields as keywords."""

    @overload
    def __call__(self, first: First_contra, second: Second_contra, /, settings: Record_contra) -> Result_co: ...
    @overload
    def __call__(
        self, first: First_contra, second: Second_contra, /, *args: Fields.args, **fields: Fields.kwargs
    ) -> Result_co: ...


class FunctionOfThree(Protocol[First_contra, Second_contra, Third_contra, Record_contra, Fields, Result_co]):
    """Function of three arguments and of settings: a record, or its fields as keywords."""

    @overload
    def __call__(
        self, first: First_contra, second: Second_contra, third: Third_contra, /, settings: Record_contra
    ) -> Result_co: ...
    @overload
    def __call__(
        self,
        first: First_contra,
        second: Second_contra,
        third: Third_contra,
        /,
        *args: Fields.args,
        **fields: Fields.kwargs,
    ) -> Result_co: ...


class FieldAcceptor(Protocol[Record, Fields]):
    """Decorator of a function whose last parameter is `settings`."""

    @overload
    def __call__(
        self, function: Callable[[First, Record], Result], /
    ) -> FunctionOfOne[First, Record, Fields, Result]: ...
    @overload
    def __call__(
        self, function: Callable[[First, Second, Record], Result], /
    ) -> FunctionOfTwo[First, Second, Record, Fields, Result]: ...
    @overload
    def __call__(
        self, function: Callable[[First, Second, Third, Record], Result], /
    ) -> FunctionOfThree[First, Second, Third, Record, Fields, Result]: ...


def accept_fields(record: Callable[Fields, Record]) -> FieldAcceptor[Record, Fields]:
    """Return a decorator by which a function takes its settings as keywords, or as one record.

    The last parameter of the function is `settings`, a record of this class. Types are checked, and `help` and the docs
    show each field as a parameter. Raises UnknownName for a keyword that is not a field, UsageError for a record
    together with keywords.

    >>> class Resampling(Settings, frozen=True, kw_only=True):
    ...     seed: int = declare(0, "Seed of the resampling.", NaturalInt)
    >>> @accept_fields(Resampling)
    ... def resample(values: list[float], settings: Resampling) -> int:
    ...     return settings.seed
    >>> resample([0.5], seed=7), resample([0.5], Resampling(seed=7)), resample([0.5])
    (7, 7, 0)
    >>> list(inspect.signature(resample).parameters)
    ['values', 'seed']
    >>> resample([0.5], sed=7)
    Traceback (most recent call last):
    ragfault.model.errors.UnknownName: no parameter of resample "sed". Did you mean "seed"?
    """
    record_class: Any = record
    declared: Mapping[str, Setting] = record_class.declared

    def decorate(function: Any) -> Any:
        signature = inspect.signature(function)
        *own, last = signature.parameters.values()
        assert last.name == "settings", f"the last parameter of {function.__name__} is {last.name}, not settings"
        own_signature = signature.replace(parameters=own)

        @wraps(function)
        def call(*arguments: object, **keywords: object) -> Any:
            settings = keywords.pop("settings", None)
            if len(arguments) > len(own):
                *arguments, settings = arguments  # type: ignore[assignment]
            fields = {name: keywords.pop(name) for name in list(keywords) if name in declared}
            for name in keywords:
                if name not in own_signature.parameters:
                    raise UnknownName(f"parameter of {function.__name__}", name, [*own_signature.parameters, *declared])
            if settings is not None and fields:
                raise UsageError(f"{function.__name__} takes settings as one record or as keywords, not both.")
            bound = own_signature.bind(*arguments, **keywords)
            return function(*bound.args, **bound.kwargs, settings=settings or record_class(**fields))

        shown = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=setting.default)
            for name, setting in declared.items()
        ]
        call.__signature__ = signature.replace(parameters=[*own, *shown])  # type: ignore[attr-defined]
        return call

    return decorate
