"""Models of pydantic 1 as programs have them. Prints their JSON schemas, which pydantic.json holds.

Usage, with Debian's python3-pydantic and python3-email-validator: pydantic_models.py > pydantic.json
"""
import json
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum, IntEnum
from typing import (Any, Dict, FrozenSet, Generic, List, NamedTuple, Optional, Set, Tuple, TypeVar,
                    Union)
from uuid import UUID

from pydantic import (BaseModel, EmailStr, Extra, Field, HttpUrl, IPvAnyAddress, NonNegativeInt,
                      PositiveInt, conint, conlist, constr, confloat)
from pydantic.generics import GenericModel
from typing_extensions import Annotated, Literal, TypedDict


class Answer(BaseModel):
    answer: int


class Person(BaseModel):
    """A person."""
    name: str
    age: Optional[int] = None


class Rating(BaseModel):
    stars: conint(ge=1, le=5)
    comment: str = Field(..., max_length=100)


class Probability(BaseModel):
    share: confloat(ge=0, le=1)
    above: confloat(gt=0, lt=10)


class Product(BaseModel):
    code: constr(regex=r"^[A-Z]{3}\d{3}$")
    stock: NonNegativeInt
    packs: PositiveInt


class Tags(BaseModel):
    tags: List[str]
    numbers: conlist(int, min_items=1, max_items=3)


class Ages(BaseModel):
    ages: Dict[str, int]


class Lists(BaseModel):
    lists: Dict[str, List[float]]


class Identifier(BaseModel):
    id: Union[int, str]


class Label(BaseModel):
    label: Literal["positive", "neutral", "negative"]
    certain: bool


class Version(BaseModel):
    version: Literal[2]
    kind: str = Field("json", const=True)


class Color(str, Enum):
    """An enumeration with a description."""
    red = "red"
    green = "green"


class Level(IntEnum):
    low = 1
    high = 2


class Car(BaseModel):
    color: Color
    level: Level = Level.low


class Address(BaseModel):
    street: str
    city: str
    zip: constr(regex=r"^[0-9]{5}$")


class Customer(BaseModel):
    name: str
    home: Address
    work: Optional[Address]


class Company(BaseModel):
    offices: List[Address]
    head: Address = Field(..., description="The main office")


class Node(BaseModel):
    name: str
    children: List["Node"] = []


class Link(BaseModel):
    value: int
    next: Optional["Link"]


class Point(BaseModel):
    point: Tuple[float, float]
    named: Tuple[str, int]


class Row(BaseModel):
    cells: Tuple[int, ...]


class Members(BaseModel):
    members: Set[str]


class Frozen(BaseModel):
    letters: FrozenSet[Literal["a", "b", "c"]]


class Event(BaseModel):
    day: date
    start: datetime


class Alarm(BaseModel):
    at: time


class Record(BaseModel):
    id: UUID
    amount: Decimal


class User(BaseModel):
    email: EmailStr
    name: constr(min_length=2, max_length=12, strip_whitespace=True)


class Page(BaseModel):
    url: HttpUrl
    title: str


class Host(BaseModel):
    address: IPvAnyAddress
    port: conint(gt=0, lt=65536)


class Aliases(BaseModel):
    first_name: str = Field(alias="firstName")
    last_name: str = Field(..., alias="lastName", title="Family name", example="Smith")


class Closed(BaseModel):
    a: int
    b: Optional[str]

    class Config:
        extra = Extra.forbid


class Open(BaseModel):
    a: int

    class Config:
        extra = Extra.allow


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: conint(ge=0, le=9)


class Dog(BaseModel):
    kind: Literal["dog"]
    name: str


class Pet(BaseModel):
    pet: Annotated[Union[Cat, Dog], Field(discriminator="kind")]


class Pets(BaseModel):
    pets: List[Union[Cat, Dog]] = Field(..., max_items=2)


class Settings(BaseModel):
    theme: Literal["dark", "light"] = "dark"
    size: int = 12
    ratio: float = 1.5
    names: List[str] = ["a", "b"]


class Anything(BaseModel):
    data: Any
    values: List[Any]
    table: dict


class Even(BaseModel):
    even: conint(multiple_of=2)
    code: constr(regex="^(yes|no)$")


class Step(BaseModel):
    explanation: str = Field(..., description="What is done")
    output: str


class Solution(BaseModel):
    steps: conlist(Step, max_items=3)
    final_answer: str


class Movie(TypedDict):
    title: str
    year: int


class Movies(BaseModel):
    movies: List[Movie]


class Pixel(NamedTuple):
    x: int
    y: int


class Drawing(BaseModel):
    pixels: List[Pixel]


T = TypeVar("T")


class Response(GenericModel, Generic[T]):
    data: T
    error: Optional[str]


class Keys(BaseModel):
    colors: Dict[Color, int]


class Codes(BaseModel):
    codes: Dict[constr(regex="^[a-z]+$"), int]


class Documented(BaseModel):
    city: str

    class Config:
        title = "The weather"
        schema_extra = {"examples": [{"city": "Rome"}]}


Node.update_forward_refs()
Link.update_forward_refs()

models = [Answer, Person, Rating, Probability, Product, Tags, Ages, Lists, Identifier, Label,
          Version, Car, Customer, Company, Node, Link, Point, Row, Members, Frozen, Event, Alarm,
          Record, User, Page, Host, Aliases, Closed, Open, Pet, Pets, Settings, Anything, Even,
          Solution, Movies, Drawing, Response[Person], Keys, Codes]
if __name__ == "__main__":
    print(json.dumps({model.__name__: model.schema() for model in models}, indent=1))
