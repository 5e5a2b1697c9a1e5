"""The stand-in that every name of this package is: it decorates, subscripts and annotates, and cannot run."""


class Unavailable:
    """A kernel, type or option of Triton: may be named and decorated with, raises where it would have to compute."""

    def __init__(self, name="triton"):
        self._name = name

    def __repr__(self):
        return f"<{self._name}: not available on a CPU>"

    def __call__(self, *args, **kwargs):
        if len(args) == 1 and not kwargs and callable(args[0]) and not isinstance(args[0], Unavailable):
            return Kernel(args[0])
        return self

    def __getitem__(self, item):
        return self

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Unavailable(f"{self._name}.{name}")

    def __mro_entries__(self, bases):
        return (object,)


class Kernel:
    """A function under `@triton.jit`: keeps its name and text, and raises when launched."""

    def __init__(self, function):
        self.fn = function
        self.__name__ = getattr(function, "__name__", "kernel")
        self.__doc__ = getattr(function, "__doc__", None)
        self.__module__ = getattr(function, "__module__", None)

    def __getitem__(self, grid):
        return self

    def __call__(self, *args, **kwargs):
        raise NotImplementedError(f"the Triton kernel {self.__module__}.{self.__name__} needs a GPU")

    run = warmup = __call__


def names(module):
    """Return a module's `__getattr__`: any public name is a stand-in."""

    def __getattr__(name):
        if name.startswith("__") or name == "knobs":  # PyTorch has a way of its own without knobs
            raise AttributeError(name)
        return Unavailable(f"{module}.{name}")

    return __getattr__
