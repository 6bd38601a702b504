import abc, enum, dataclasses
class Colour(enum.Enum):
    RED = 1
    BLUE = 2
@dataclasses.dataclass(order=True)
class P:
    x: int
    y: int = 0
class Shape(abc.ABC):
    @abc.abstractmethod
    def area(self): ...
class Square(Shape):
    def __init__(self, s): self.s = s
    def area(self): return self.s ** 2
print(Colour.RED, list(Colour), P(1) < P(2), P(1), Square(3).area(), Colour.__module__)
try:
    Shape()
except TypeError as e:
    print(type(e).__name__)
