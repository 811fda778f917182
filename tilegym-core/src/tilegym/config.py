"""Every environment variable that TileGym reads, typed and strict.

Nothing is read when `tilegym` is imported: the first use reads all of them once, `reload()` reads them anew.
"""

from __future__ import annotations

import difflib
import os
import warnings
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from tilegym import log
from tilegym.errors import ArgumentTypeError, ConfigError, EnvironmentWarning
from tilegym.text import nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_PREFIX: Final = "TILEGYM_"
Fallback = Literal["warn", "error", "silent"]


def canonical_name(name: str) -> str:
    """The one spelling of a backend's or plugin's name: lower case, `_` written as `-`.

    Raises:
        ArgumentTypeError: it is no string.
    """
    if not isinstance(name, str):
        raise ArgumentTypeError(f"a backend is named by a string, got {type(name).__name__}")
    return name.strip().lower().replace("_", "-")


def _one_of(*choices: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        value = text.strip().lower()
        if value not in choices:
            raise ValueError(f"one of {', '.join(choices)}.{nearest(value, choices)}")
        return value

    return parse


_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off", "")


def parse_flag(text: str) -> bool:
    """A strict boolean; ValueError says what is accepted."""
    value = text.strip().lower()
    if value not in _TRUE + _FALSE:
        raise ValueError("1, true, yes, on or 0, false, no, off")
    return value in _TRUE


def _names(text: str) -> frozenset[str]:
    return frozenset(canonical_name(name) for name in text.split(",") if name.strip())


def _directory(text: str) -> Path:
    try:
        path = Path(text).expanduser()
    except RuntimeError:  # of a user that does not exist
        path = Path(text)
    if not text.strip() or not path.is_absolute():
        raise ValueError("an absolute path")
    return path


def _setting(default: Any, variable: str, parse: Callable[[str], Any], text: str) -> Any:
    return field(default=default, metadata={"variable": variable, "parse": parse, "help": text})


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """The settings in force; each field's metadata names its environment variable."""

    backend: str | None = _setting(None, "TILEGYM_BACKEND", canonical_name, "the backend to prefer")
    fallback: Fallback = _setting(  # noqa: RUF009 - a dataclass field
        "warn",
        "TILEGYM_FALLBACK",
        _one_of("warn", "error", "silent"),
        "what happens when the preferred backend cannot take a call: warn, error or silent",
    )
    disable_fallback: bool = _setting(
        default=False, variable="DISABLE_FALLBACK", parse=parse_flag, text="older name for TILEGYM_FALLBACK=error"
    )
    plugins: frozenset[str] | None = _setting(
        None, "TILEGYM_PLUGINS", _names, "the only entry points or distributions to load, comma separated"
    )
    disable_plugins: frozenset[str] = _setting(
        frozenset(), "TILEGYM_DISABLE_PLUGINS", _names, "entry points or distributions never to load"
    )
    strict: bool = _setting(
        default=False, variable="TILEGYM_STRICT", parse=parse_flag, text="a plugin that fails to load raises"
    )
    cache_dir: Path | None = _setting(  # noqa: RUF009 - a dataclass field
        None, "TILEGYM_CACHE_DIR", _directory, "where tuning results are kept; by default the user's cache directory"
    )
    log: str | None = _setting(
        None,
        "TILEGYM_LOG",
        _one_of("debug", "info", "warning", "error"),
        "level of the logger 'tilegym', written to standard error",
    )

    def as_dict(self) -> dict[str, Any]:
        """Each variable with its value in force, for `tilegym doctor`."""
        return {f.metadata["variable"]: getattr(self, f.name) for f in fields(self)}


def parse(environ: Mapping[str, str]) -> tuple[Settings, list[str]]:
    """The settings that an environment asks for, and what is wrong with it; a wrong value counts as not given."""
    values: dict[str, Any] = {}
    problems: list[str] = []
    for setting in fields(Settings):
        variable, parse_value = setting.metadata["variable"], setting.metadata["parse"]
        text = environ.get(variable)
        if text is None or (text == "" and parse_value is not parse_flag):
            continue
        try:
            values[setting.name] = parse_value(text)
        except ValueError as error:
            problems.append(f"environment variable {variable}: got {text!r}, expected {error}")
    if values.get("disable_fallback"):
        if values.get("fallback", "error") != "error":
            problems.append("DISABLE_FALLBACK=1 and TILEGYM_FALLBACK contradict each other; unset one of them")
        values["fallback"] = "error"
    return Settings(**values), problems


def read(environ: Mapping[str, str]) -> Settings:
    """The settings that an environment asks for.

    Raises:
        ConfigError: a value means nothing.
    """
    found, problems = parse(environ)
    if problems:
        raise ConfigError("; ".join(problems))
    return found


def misspelt(environ: Mapping[str, str]) -> list[str]:
    """What is wrong with names of variables: those that look like one of ours. Other distributions have their own."""
    known = {variable.removeprefix(_PREFIX): variable for variable in Settings().as_dict()}
    strangers = sorted(name for name in environ if name.startswith(_PREFIX) and name not in known.values())
    near = {name: difflib.get_close_matches(name.removeprefix(_PREFIX), known, n=1, cutoff=0.87) for name in strangers}
    return [
        f"environment variable {name} is not known, and ignored. Did you mean {known[found[0]]}?"
        for name, found in near.items()
        if found
    ]


def examine() -> tuple[Settings, list[str]]:
    """What this process's environment asks for, and what is wrong with it."""
    found, problems = parse(os.environ)
    return found, problems + misspelt(os.environ)


_settings: Settings | None = None


def settings() -> Settings:
    """The settings in force, read from the environment on first use."""
    global _settings  # noqa: PLW0603 - the one cached reading of the environment
    if _settings is None:
        _settings = read(os.environ)
        log.configure(_settings.log)
        _warn_of_misspelt()
    return _settings


def _warn_of_misspelt() -> None:
    for problem in misspelt(os.environ):
        warnings.warn(problem, EnvironmentWarning, stacklevel=3)


def reload() -> Settings:
    """Read the environment anew, forget what plugins it chose, and return the settings in force."""
    found = read(os.environ)
    _put_in_force(found)
    _warn_of_misspelt()
    return found


@contextmanager
def override(replacement: Settings) -> Iterator[None]:
    """Other settings than the environment's inside the block; plugins are loaded anew, at its start and its end."""
    before = _settings
    _put_in_force(replacement)
    try:
        yield
    finally:
        _put_in_force(before)


def _put_in_force(replacement: Settings | None) -> None:
    global _settings  # noqa: PLW0603 - the one cached reading of the environment
    from tilegym import plugins

    _settings = replacement
    log.configure(replacement.log if replacement is not None else None)
    plugins.forget()


def cuda_home() -> str | None:
    """The CUDA toolkit that the environment names; cuda-tile's compiler takes its ptxas and libnvvm from there."""
    return os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
