"""Every exception and warning of TileGym.

Each derives from `TileGymError` and from the builtin that people would catch.
"""


class TileGymError(Exception):
    """Base of every exception raised by TileGym."""


class ConfigError(TileGymError, ValueError):
    """An environment variable holds a value that means nothing."""


class UnknownOpError(TileGymError, AttributeError):
    """No installed op has this name."""


class BackendError(TileGymError, ValueError):
    """The backend asked for by name cannot be used."""


class UnknownBackendError(BackendError):
    """No installed distribution provides a backend of this name."""


class BackendUnavailableError(BackendError, RuntimeError):
    """The backend is installed, but it cannot run here; the message says why."""


class NoImplementationError(TileGymError, NotImplementedError):
    """No backend that may be chosen can take this call; the message gives every candidate's reason."""


class ContractError(TileGymError):
    """An argument breaks the op's contract. Raised before anything is launched or written."""


class ShapeError(ContractError, ValueError):
    """A tensor has the wrong rank or shape."""


class DtypeError(ContractError, TypeError):
    """A tensor has a dtype that the op does not take."""


class DeviceError(ContractError, ValueError):
    """A tensor lies on another device than the first one."""


class ArgumentTypeError(ContractError, TypeError):
    """An argument is of the wrong type, missing, or unknown."""


class ArgumentValueError(ContractError, ValueError):
    """An argument is of the right type, and its value means nothing to the op."""


class GradientError(TileGymError, RuntimeError):
    """A gradient is needed that the chosen implementation does not give."""


class RegistrationError(TileGymError, ValueError):
    """An op, implementation or backend is declared in a way that breaks the rules."""


class PluginError(TileGymError, RuntimeError):
    """A plugin failed to load; its own exception is the cause."""


class CompilationError(TileGymError, RuntimeError):
    """A kernel cannot be compiled for an architecture; the message says which, and what the compiler says."""


class BenchmarkError(TileGymError, RuntimeError):
    """A benchmark cannot be run as asked for; the message says what it lacks."""


class WrongAnswerError(TileGymError, AssertionError):
    """A result is further from the reference than its error bound, or has another shape; it is not timed."""


class RecordError(TileGymError, ValueError):
    """JSON does not have the fields, or a field not the type, of the record that it should be."""


class ResultsError(TileGymError, ValueError):
    """A file with results of a benchmark cannot be read or written, or holds none."""


class TileGymWarning(UserWarning):
    """Base of every warning issued by TileGym."""


class PluginWarning(TileGymWarning):
    """A plugin was left out; the message names the distribution, the entry point and the cause."""


class FallbackWarning(TileGymWarning):
    """Another backend than the preferred one served a call."""


class EnvironmentWarning(TileGymWarning):
    """The environment asks for something that cannot be had here."""
