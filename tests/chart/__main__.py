"""Write anew what is made from others: the schema's list of settings, and the golden manifests."""

from tests.architecture._chart import EXAMPLES, path_of_golden, write_schema
from tests.chart._helm import render

if __name__ == "__main__":
    write_schema()
    for example in EXAMPLES:
        path_of_golden(example).write_text(render(example))
