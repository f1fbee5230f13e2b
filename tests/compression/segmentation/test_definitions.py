"""Code is cut at its definitions, whatever the language, and with what stands around it."""

import pytest

from compression.segmentation import segment
from compression.source.units import Segmentation

GO = """package main

import (
	"fmt"
	"net/http"
)

// Do sends a request and
// returns the response.
func (c *Client) Do(req *http.Request) (*http.Response, error) {
	if req == nil {
		return nil, fmt.Errorf("no request")
	}
	return c.http.Do(req)
}

func main() {
	fmt.Println(Do(nil))
}
"""
RUBY = """module Shop
  class Ledger
    # Adds an entry.
    def add(entry)
      raise ArgumentError, "nil" if entry.nil?

      @entries << entry
    end

    def self.load(path)
      new(File.read(path).lines)
    end
  end
end
"""
TYPESCRIPT = """import { Foo } from './foo';

export async function fetchFoo(
  url: string,
  options: Options = {},
): Promise<Foo> {
  for (let i = 0; i < options.retries; i++) {
    return await get<Foo>(url);
  }
}

export const parse = (text: string): Foo => {
  return JSON.parse(text);
};
"""
C = """#include <stdio.h>

/* Adds two
 * numbers. */
int add(int a, int b)
{
    return a + b;
}

int main(void)
{
    printf("%d", add(1, 2));
    return 0;
}
"""
FILES = {"main.go": (GO, "// Do sends"), "a.ts": (TYPESCRIPT, "export async"), "add.c": (C, "/* Adds")}


def texts(found: Segmentation) -> list[str]:
    return found.texts()


@pytest.mark.parametrize(("code", "head"), FILES.values(), ids=FILES)
def test_a_small_function_is_one_unit_with_its_comment_and_its_whole_signature(code: str, head: str) -> None:
    (unit,) = (each for each in texts(segment(code)) if each.startswith(head))
    assert unit.endswith("}")
    assert code[code.index(head) :].split("}\n\n")[0] in unit


@pytest.mark.parametrize("code", [GO, TYPESCRIPT, C], ids=["go", "ts", "c"])
def test_code_without_a_fence_is_code(code: str) -> None:
    found = segment(f"Here is my code:\n\n{code}\nIt fails with no options. What should I change?\n")
    kinds = {unit.kind for unit in found.units[1:-2]}
    assert kinds == {"code_block"}
    assert texts(found)[-2].startswith("It fails")


def test_prose_that_speaks_of_calls_stays_prose() -> None:
    prose = (
        "The mayor spoke (at length).\nReturn to the harbour was slow: nobody\ncalled f(x) by name.\n"
        "Then it rained.\n"
    )
    assert all(unit.kind != "code_block" for unit in segment(prose * 5).units)


def big_class() -> str:
    methods = "".join(
        f"    def method_{n}(self, first, second={n}):\n" + "        self.use(first, second)\n" * 6 + "\n"
        for n in range(12)
    )
    return f"@dataclass\nclass Shop(Base):\n{methods}"


def test_a_class_that_is_too_long_frames_its_methods() -> None:
    found = segment(f"```python\n{big_class()}```\n")
    methods = [unit for unit in found.units if "def method_" in found.source[unit.start : unit.end]]
    assert len(methods) == 12
    heads = {found.text(found.frames[unit.frame].open) for unit in methods if unit.frame is not None}
    assert heads == {"@dataclass\nclass Shop(Base):"}


def test_a_listing_with_line_numbers_is_cut_as_without_them() -> None:
    numbered = "\n".join(f"{n:6d}\t{line}" for n, line in enumerate(TYPESCRIPT.split("\n"), 40))
    assert len(segment(numbered).units) == len(segment(TYPESCRIPT).units)


def test_lines_that_name_files_begin_documents() -> None:
    found = segment(f"# file: src/main.go\n{GO}\n# file: lib/a.ts\n{TYPESCRIPT}")
    titles = [found.text(each.title) for each in found.documents if each.title is not None]
    assert titles == ["# file: src/main.go", "# file: lib/a.ts"]


def test_nothing_of_the_code_is_in_no_unit_and_nothing_in_two() -> None:
    for code in (GO, RUBY, TYPESCRIPT, C, big_class()):
        found = segment(f"```\n{code}```\n")
        covered = "".join(texts(found))
        assert "".join(covered.split()) == "".join(found.source.split())


def test_a_string_that_nothing_ends_costs_no_structure() -> None:
    code = GO.replace("no request", "no ''' request")
    assert len(segment(code).units) == len(segment(GO).units)


@pytest.mark.parametrize(
    "clauses",
    [
        "The Supplier agrees to the following terms, namely (\nto deliver the goods within five days of the order;\n"
        "to inform the Buyer(s) in writing of any delay that it becomes aware of;\nto keep records of all deliveries;\n"
        "to allow the Buyer(s) and their auditors to inspect these records;\nand to bear the cost of any return).\n",
        "Поставщик обязуется(согласно договору)\nпоставить товар в течение пяти дней;\n"  # noqa: RUF001
        "сообщить покупателю(письменно) о задержке;\nнести расходы по возврату товара;\n"  # noqa: RUF001
        "хранить все документы шесть лет;\nне передавать договор без согласия;\n",  # noqa: RUF001
        "Der Lieferant verpflichtet sich(Absatz)\ndie Ware binnen fünf Tagen nach der Bestellung zu liefern;\n"
        "den Käufer(schriftlich) über jede Verzögerung zu unterrichten;\nalle Unterlagen lange aufzubewahren;\n"
        "diesen Vertrag nicht ohne Zustimmung zu übertragen;\n",
    ],
)
def test_clauses_that_end_in_semicolons_are_no_code(clauses: str) -> None:
    assert not any(unit.kind == "code_block" for unit in segment(clauses).units)
