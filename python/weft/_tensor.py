"""Tensors that go in and out without copies, by NumPy's array interface, DLPack or buffers."""
from __future__ import annotations

import ctypes
import struct
from ctypes import POINTER, c_char, c_char_p, c_int, c_int32, c_int64, c_uint8, c_uint16, c_uint64, c_void_p, py_object

from weft import _native

TYPE_CHECKING = False  # as of typing, which takes a while to import
if TYPE_CHECKING:
    from typing import Any, Tuple

# By number (weft_dtype): name, size, NumPy's type (of bfloat16 and fp8, which NumPy lacks: of the
# bits), format of struct, and code of DLPack.
_DTYPES = {
    0: ("bool", 1, "|b1", "?", 6), 1: ("int16", 2, "<i2", "h", 0), 2: ("int32", 4, "<i4", "i", 0),
    3: ("int64", 8, "<i8", "q", 0), 4: ("float16", 2, "<f2", "e", 2),
    5: ("float32", 4, "<f4", "f", 2), 6: ("float64", 8, "<f8", "d", 2),
    20: ("uint8", 1, "|u1", "B", 1), 21: ("int8", 1, "|i1", "b", 0),
    22: ("bfloat16", 2, "<u2", "H", 4), 23: ("complex64", 8, "<c8", None, 5),
    24: ("complex128", 16, "<c16", None, 5), 32: ("float8_e4m3fn", 1, "|u1", "B", 10),
    33: ("float8_e5m2", 1, "|u1", "B", 12), 36: ("uint16", 2, "<u2", "H", 1),
    37: ("uint32", 4, "<u4", "I", 1), 38: ("uint64", 8, "<u8", "Q", 1),
}
_BY_TYPESTR = {row[2]: number for number, row in sorted(_DTYPES.items(), reverse=True)
               if row[0] not in ("bfloat16", "float8_e4m3fn", "float8_e5m2")}
_BY_NAME = {row[0]: number for number, row in _DTYPES.items()}
_BY_FORMAT = {row[3]: number for number, row in sorted(_DTYPES.items(), reverse=True)
              if row[3] and row[0] not in ("bfloat16", "float8_e4m3fn", "float8_e5m2")}
_BY_FORMAT["l"] = 3
_BY_FORMAT["L"] = 38
_BY_DLPACK = {(row[4], row[1] * 8): number for number, row in _DTYPES.items()}


class _DLTensor(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("device_type", c_int32), ("device_id", c_int32),
                ("ndim", c_int32), ("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16),
                ("shape", POINTER(c_int64)), ("strides", POINTER(c_int64)),
                ("byte_offset", c_uint64)]


class _Managed(ctypes.Structure):
    pass


_DELETER = ctypes.CFUNCTYPE(None, POINTER(_Managed))
_Managed._fields_ = [("tensor", _DLTensor), ("context", c_void_p), ("deleter", _DELETER)]
_CPU, _PINNED = 1, 3  # both are memory of the host


class _Interface(ctypes.Structure):
    """What NumPy's __array_struct__ points to."""
    _fields_ = [("two", c_int), ("ndim", c_int), ("kind", c_char), ("itemsize", c_int),
                ("flags", c_int), ("shape", POINTER(c_int64)), ("strides", c_void_p),
                ("data", c_void_p)]


_READABLE = 0x301  # without gaps, aligned, and in the order of bytes of the machine
# By kind and size of an element.
_BY_KIND = {(typestr[1].encode(), int(typestr[2:])): number
            for typestr, number in _BY_TYPESTR.items()}
_pointer_of = ctypes.PYFUNCTYPE(c_void_p, py_object, c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi))
_lent = {}  # by address of a _Managed: it, its shape, and the tensor whose memory it has


@_DELETER
def _give_back(managed):
    _lent.pop(ctypes.addressof(managed.contents), None)


@ctypes.PYFUNCTYPE(None, c_void_p)
def _free_capsule(capsule):
    is_valid = ctypes.pythonapi.PyCapsule_IsValid
    is_valid.argtypes = [c_void_p, c_char_p]
    if not is_valid(capsule, b"dltensor"):
        return  # somebody has taken it
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = c_void_p, [c_void_p, c_char_p]
    _lent.pop(get(capsule, b"dltensor"), None)


class Tensor:
    """A tensor in memory of Weft: numpy.asarray and from_dlpack take it without a copy. Equal to
    another one of the same type, shape and bits.

    dtype   "float32", "bfloat16", ...
    shape   a tuple
    """

    __slots__ = ("_owner", "_number", "shape", "_data", "__weakref__")
    shape: Tuple[int, ...]

    def __init__(self, owner, array):
        self._owner = owner  # keeps the memory
        self._number = array.dtype
        self.shape = tuple(array.dims[:array.num_dims])
        self._data = array.data or 0

    @property
    def dtype(self) -> str:
        """The element type, as NumPy names it."""
        return _DTYPES[self._number][0]

    @property
    def size(self) -> int:
        """The number of elements."""
        return _product(self.shape)

    @property
    def nbytes(self) -> int:
        """The size in bytes."""
        return self.size * _DTYPES[self._number][1]

    @property
    def __array_interface__(self):
        return {"version": 3, "typestr": _DTYPES[self._number][2], "shape": self.shape,
                "data": (self._data, False)}

    def numpy(self) -> Any:
        """A NumPy array over the same memory; of bfloat16 and fp8, of the bits."""
        import numpy  # pylint: disable=import-outside-toplevel
        return numpy.asarray(self)

    def __dlpack_device__(self):
        return (_CPU, 0)

    def __dlpack__(self, stream=None, max_version=None, dl_device=None, copy=None):
        _, size, _, _, code = _DTYPES[self._number]
        if dl_device is not None and int(dl_device[0]) != _CPU:
            raise BufferError("expected device type %d, the host, found %d" % (_CPU, dl_device[0]))
        shape = (c_int64 * len(self.shape))(*self.shape)
        of = self if not copy else ctypes.create_string_buffer(self.tobytes(), max(self.nbytes, 1))
        data = ctypes.addressof(of) if copy else self._data
        managed = _Managed(
            _DLTensor(data, _CPU, 0, len(self.shape), code, size * 8, 1,
                      ctypes.cast(shape, POINTER(c_int64)), None, 0), None, _give_back)
        address = ctypes.addressof(managed)
        _lent[address] = managed, shape, of
        make = ctypes.pythonapi.PyCapsule_New
        make.restype, make.argtypes = py_object, [c_void_p, c_char_p, c_void_p]
        return make(address, b"dltensor", ctypes.cast(_free_capsule, c_void_p))

    def __reduce__(self):
        return _of_bytes, (self._number, self.shape, self.tobytes())

    def tobytes(self) -> bytes:
        """A copy of the elements, in row-major order."""
        return ctypes.string_at(self._data, self.nbytes)

    def tolist(self) -> Any:
        """Nested lists of Python numbers; of bfloat16 and fp8, of the bits."""
        kind = _DTYPES[self._number][3]
        if kind is None:
            return self.numpy().tolist()
        flat = memoryview(self.tobytes()).cast(kind) if kind != "e" else _halves(self.tobytes())
        if not self.shape:
            return flat[0]
        values = list(flat)
        for axis in range(len(self.shape) - 1, 0, -1):
            dim = self.shape[axis]
            values = [values[i * dim:(i + 1) * dim] for i in range(_product(self.shape[:axis]))]
        return values

    def __float__(self) -> float:
        if self.size != 1:
            raise TypeError("expected one element, found shape %s" % (self.shape,))
        value = self.tolist()
        while isinstance(value, list):
            value = value[0]
        decode = _DECODE.get(self.dtype)
        return decode(value) if decode else float(value)

    def __eq__(self, other):
        if not isinstance(other, Tensor):
            return NotImplemented  # NumPy compares elements
        return (self._number, self.shape) == (other._number, other.shape) and (
            self.tobytes() == other.tobytes())

    __hash__ = None

    def __bool__(self):
        return float(self) != 0

    def __len__(self):
        if not self.shape:
            raise TypeError("a tensor without dimensions has no length")
        return self.shape[0]

    def __repr__(self):
        return "<weft.Tensor %s%s>" % (self.dtype, list(self.shape))


def _of_bytes(number, shape, data):
    """A copy of a tensor, in memory of Python."""
    array = _native.Array()
    _, dims = _set(array, number, shape, None, None)
    buffer = ctypes.create_string_buffer(data, max(len(data), 1))
    array.data = ctypes.addressof(buffer)
    return Tensor((buffer, dims), array)


class Bits:
    """A NumPy array whose elements are the bits of a type that NumPy lacks: dtype "bfloat16"."""

    __slots__ = ("_array", "dtype", "shape")

    def __init__(self, array, dtype):
        import numpy  # pylint: disable=import-outside-toplevel
        self._array, self.dtype = numpy.ascontiguousarray(array).reshape(array.shape), dtype
        self.shape = array.shape

    @property
    def __array_interface__(self):
        return dict(self._array.__array_interface__, typestr="|V%d" % self._array.itemsize)

    def numpy(self):
        """The bits."""
        return self._array


def _product(dims):
    product = 1
    for dim in dims:
        product *= dim
    return product


def _halves(data):
    return struct.unpack("<%de" % (len(data) // 2), data)


def _of_bfloat16(bits):
    return struct.unpack("<f", struct.pack("<I", bits << 16))[0]  # the upper half of a float32


def _of_e5m2(bits):
    return _halves(struct.pack("<H", bits << 8))[0]  # the upper half of a float16


def _of_e4m3fn(bits):
    sign, exponent, fraction = -1.0 if bits & 0x80 else 1.0, bits >> 3 & 15, bits & 7
    if exponent == 15 and fraction == 7:
        return float("nan")
    if exponent == 0:
        return sign * fraction * 2.0 ** -9
    return sign * (8 + fraction) * 2.0 ** (exponent - 10)


# By name: what makes a number of the bits.
_DECODE = {"bfloat16": _of_bfloat16, "float8_e4m3fn": _of_e4m3fn, "float8_e5m2": _of_e5m2}


def fill(array, value, name):
    """Makes a _native.Array of whatever is an array; returns what must live as long."""
    if isinstance(value, Tensor):
        return _set(array, value._number, value.shape, value._data, value)
    if hasattr(value, "mask") and getattr(value.mask, "any", bool)():  # of NumPy
        raise _native.Error("feed %s: expected an array without a mask; with NumPy: array.filled(0)" %
                            name, "INVALID_ARGUMENT")
    capsule = getattr(value, "__array_struct__", None)
    if capsule is not None:  # of most arrays of NumPy, all that there is to read
        found = _Interface.from_address(_pointer_of(capsule, None))
        number = _BY_KIND.get((found.kind, found.itemsize))
        if number is not None and found.flags & _READABLE == _READABLE:
            array.dtype, array.num_dims = number, found.ndim
            array.dims, array.data = found.shape, found.data
            return value, capsule
    interface = getattr(value, "__array_interface__", None)
    if interface is not None:
        if interface.get("strides") is not None or interface["typestr"][0] == ">":
            import numpy  # pylint: disable=import-outside-toplevel
            value = numpy.asarray(value)
            value = value.astype(value.dtype.newbyteorder("="), order="C")
            interface = value.__array_interface__
        number = _BY_TYPESTR.get(interface["typestr"])
        if number is None or interface["typestr"][1] == "V":
            number = _BY_NAME.get(str(value.dtype))
        if number is None:
            raise _unknown(name, str(getattr(value, "dtype", interface["typestr"])))
        return _set(array, number, interface["shape"], interface["data"][0], value)
    if hasattr(value, "__dlpack__"):
        return _fill_from_dlpack(array, value, name)
    try:
        view = memoryview(value)
    except (TypeError, BufferError):
        if hasattr(value, "__array__"):  # tensors of Paddle, which copies them
            import numpy  # pylint: disable=import-outside-toplevel
            return fill(array, numpy.asarray(value), name)
        raise _native.Error(
            "feed %s: expected an array (NumPy, DLPack or a buffer), found %s; numpy.asarray makes "
            "one of numbers" % (name, type(value).__name__), "INVALID_ARGUMENT") from None
    number = _BY_FORMAT.get(view.format.lstrip("@=<"))
    if number is None:
        raise _unknown(name, view.format)
    data = ctypes.create_string_buffer(view.tobytes(), max(view.nbytes, 1))
    return _set(array, number, view.shape, ctypes.addressof(data), data)


def names_of(arrays):
    """Names as functions take them."""
    other = next((name for name in arrays if not isinstance(name, str)), None)
    if other is not None:
        raise _native.Error("expected names that are str, found %r" % (other,), "INVALID_ARGUMENT")
    return (c_char_p * len(arrays))(*map(_native.c_text, arrays))


def fill_all(arrays):
    """Names and arrays as functions take them, of name -> array, and what must live as long."""
    names = names_of(arrays)
    values = (_native.Array * len(arrays))()
    return names, values, [fill(value, one, name)
                           for value, (name, one) in zip(values, arrays.items())]


def _unknown(name, found):
    return _native.Error("feed %s: Weft has no element type %s; with NumPy: "
                         "array.astype makes another" % (name, found), "INVALID_ARGUMENT")


def _set(array, number, shape, data, keep):
    dims = (c_int64 * len(shape))(*shape)
    array.dtype = number
    array.num_dims = len(shape)
    array.dims = dims
    array.data = data
    return keep, dims


def _capsule_of(value, name):
    device = value.__dlpack_device__()[0]
    if int(device) not in (_CPU, _PINNED):
        raise _native.Error("feed %s: expected memory of the host, found device type %d; with "
                            "PyTorch: .cpu()" % (name, device), "INVALID_ARGUMENT")
    if getattr(value, "requires_grad", False):
        value = value.detach()
    if hasattr(value, "resolve_neg"):  # PyTorch's: the elements are still to be negated
        value = value.resolve_conj().resolve_neg()
    if hasattr(value, "contiguous"):  # PyTorch's; copies what has gaps
        value = value.contiguous()
    return value.__dlpack__()


def _fill_from_dlpack(array, value, name):
    try:
        capsule = _capsule_of(value, name)
    except AssertionError:  # a tensor of Paddle, while it makes static programs
        import numpy  # pylint: disable=import-outside-toplevel
        return fill(array, numpy.asarray(value), name)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:  # sparse, quantized, ...
        raise _native.Error(
            "feed %s: expected a tensor that DLPack takes, found %s: %s; with PyTorch: .to_dense(), "
            ".dequantize()" % (name, type(value).__name__, str(error).split("\n", 1)[0]),
            "INVALID_ARGUMENT") from error
    tensor = _Managed.from_address(_pointer_of(capsule, b"dltensor")).tensor
    shape = tuple(tensor.shape[:tensor.ndim])
    if tensor.strides:
        expected = 1
        for dim, stride in zip(reversed(shape), reversed(tensor.strides[:tensor.ndim])):
            if dim > 1 and stride != expected:
                raise _native.Error("feed %s: expected rows without gaps; with PyTorch: "
                                    ".contiguous()" % name, "INVALID_ARGUMENT")
            expected *= dim
    number = _BY_DLPACK.get((tensor.code, tensor.bits)) if tensor.lanes == 1 else None
    if number is None:
        raise _unknown(name, "of DLPack's code %d and %d bits" % (tensor.code, tensor.bits))
    return _set(array, number, shape, (tensor.data or 0) + tensor.byte_offset, capsule)
