"""Metrics over tables of logged predictions, against what the engine itself needs to sort or to count the same rows.

    python benchmarks/logs.py [--rows 5e7] [--save]    (about 10 minutes)
    python benchmarks/logs.py --rows 1e6               (a minute or two)
    python benchmarks/logs.py --growth [--save]        (about 10 minutes: 1e5 to 1e8 rows)
    python benchmarks/logs.py --spark [--rows 5e6]     (about 5 minutes: needs pyspark and Java; 5e7 rows take 15)
    python benchmarks/logs.py --plans                  (a minute: the query plans of docs/logs.md)
    python benchmarks/logs.py --processor              (the same in seconds of the processor, on a busy machine; 40 minutes)

DuckDB has two threads and 3 GB. The table has distinct float64 confidences in Parquet, 1,000 groups, and a second
confidence. Tables are made once in the system's temporary folder, in `twofold-benchmark-logs`, and kept.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from script import announce

import duckdb
import pyarrow.parquet as pq

from timing import best, finish, row
from twofold import logs, metrics
from twofold.logs import _duckdb, _spark
from twofold.logs.columns import choose_columns, count_groups, plain_columns
from twofold.logs.tables import open_table

THREADS, MEMORY = 2, "3GB"
FOLDER = Path(tempfile.gettempdir()) / "twofold-benchmark-logs"
TABLE = """
    SELECT random() < 1 / (1 + exp(-2 * conf - 1)) AS correct, conf, conf_ood, model, day, saturated
    FROM (
        SELECT sqrt(-2 * ln(1 - random())) * cos(2 * pi() * random()) AS conf,
               sqrt(-2 * ln(1 - random())) * cos(2 * pi() * random()) AS conf_ood,
               1 - random() ** 8 AS saturated,
               'model-' || (random() * 9.999)::INT AS model,
               DATE '2026-01-01' + (random() * 99.999)::INT AS day
        FROM range({rows})
    )
"""


def option(name: str, usual: float) -> int:
    if name not in sys.argv:
        return int(usual)
    place = sys.argv.index(name) + 1
    try:
        return int(float(sys.argv[place]))
    except (IndexError, ValueError):
        sys.exit(f"{name} needs a number, such as {usual:g}")


def table_of(rows: int) -> str:
    """Write the table, unless it is there."""
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / f"{rows}.parquet"
    if not path.exists():
        announce(f"writing {rows:,} rows")
        partial = path.with_suffix(".part")
        connect().execute(f"COPY ({TABLE.format(rows=rows)}) TO '{partial}' (FORMAT parquet)")
        partial.rename(path)
    return str(path)


def connect() -> duckdb.DuckDBPyConnection:
    settings = {"threads": THREADS, "memory_limit": MEMORY, "preserve_insertion_order": False}
    connection = duckdb.connect(config=settings)
    connection.execute("SET enable_progress_bar = false")
    return connection


def plain_sort(path: str) -> None:
    connection = connect()
    for _ in connection.sql(f"SELECT conf, correct FROM '{path}' ORDER BY conf DESC").to_arrow_reader(1 << 17):
        pass


def plain_count(path: str) -> None:
    query = f"SELECT (conf * 6553.6)::INT AS cell, correct, count(*) FROM '{path}' GROUP BY ALL"
    connect().sql(query).to_arrow_table()


def evaluate(path: str, **settings):
    return logs.evaluate(path, conf=settings.pop("conf", "conf"), memory=MEMORY, threads=THREADS, **settings)


def peak_memory(path: str) -> float:
    """Measure the largest memory of a process that evaluates the table, in GB."""
    code = f"from twofold import logs; logs.evaluate({path!r}, conf='conf', memory={MEMORY!r}, threads={THREADS})"
    subprocess.run([sys.executable, "-c", code], check=True)
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e6


def on_duckdb(rows: int, clock) -> list[dict[str, str]]:
    path = table_of(rows)
    case = f"DuckDB, {rows:,} rows"
    announce(f"{case}: sorting, counting, groups")
    times = best(
        {
            "sort": lambda: plain_sort(path),
            "exact": lambda: evaluate(path),
            "groups": lambda: evaluate(path, by=["model", "day"]),
            "count": lambda: plain_count(path),
            "cells": lambda: evaluate(path, exact=False),
        },
        3,
        clock,
    )
    made = [
        row(case, "exact standard set", times["exact"], "s", "-"),
        row(case, "exact standard set / ORDER BY read as Arrow", times["exact"] / times["sort"], "x", "<= 1.3"),
        row(case, "1,000 groups / one group", times["groups"] / times["exact"], "x", "<= 2"),
        row(case, "65,536 cells / GROUP BY an integer", times["cells"] / times["count"], "x", "<= 2"),
    ]
    for conf, name in (("conf", "Gaussian"), ("saturated", "saturated")):
        announce(f"{case}: width of bounds, {name} confidences")
        width = evaluate(path, conf=conf, exact=False, metrics=["aurc"]).bounds["aurc"]
        made.append(row(case, f"width of the bounds of AURC, {name}", width.high - width.low, "", "-"))
    announce(f"{case}: peak memory")
    made.append(row(case, "peak memory of the process, limit 3 GB", peak_memory(path), "GB", "< 3"))
    return made


def in_memory(clock) -> list[dict[str, str]]:
    rows = 1_000_000
    table = pq.read_table(table_of(rows), columns=["correct", "conf"]).combine_chunks()
    correct, conf = (table[name].to_numpy() for name in ("correct", "conf"))
    announce("PyArrow, 1,000,000 rows")
    times = best({"ours": lambda: logs.evaluate(table), "arrays": lambda: metrics.evaluate(correct, conf)}, 7, clock)
    case = "PyArrow, 1,000,000 rows"
    return [row(case, "logs.evaluate / metrics.evaluate", times["ours"] / times["arrays"], "x", "<= 2")]


def start_spark():
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false").config("spark.driver.memory", "4g")
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def on_spark(rows: int) -> list[dict[str, str]]:
    path = table_of(rows)
    spark = start_spark()
    frame = spark.read.parquet(path)
    announce(f"Spark local[2], {rows:,} rows")
    logs.evaluate(frame.limit(10_000), conf="conf")  # starts Python workers and compiles, which counts for neither
    with tempfile.TemporaryDirectory() as folder:
        times = best(
            {
                "sort": lambda: (
                    frame.select("conf", "correct")
                    .sort("conf", ascending=False)
                    .write.mode("overwrite")
                    .parquet(f"{folder}/sorted")
                ),
                "ours": lambda: logs.evaluate(frame, conf="conf"),
            },
            2 if rows < 50_000_000 else 1,
        )
    spark.stop()
    target = "<= 1.5" if rows >= 50_000_000 else "<= 2"
    case = f"Spark local[2], {rows:,} rows"
    return [row(case, "exact standard set / written global sort", times["ours"] / times["sort"], "x", target)]


def growth(clock) -> list[dict[str, str]]:
    made = []
    for rows in (10**5, 10**6, 10**7, 10**8):
        path = table_of(rows)
        announce(f"{rows:,} rows")
        times = best(
            {"exact": lambda path=path: evaluate(path), "cells": lambda path=path: evaluate(path, exact=False)},
            1,
            clock,
        )
        case = f"DuckDB, {rows:,} rows"
        made.append(row(case, "exact standard set, a row", 1e9 * times["exact"] / rows, "ns", "-"))
        made.append(row(case, "65,536 cells, a row", 1e9 * times["cells"] / rows, "ns", "-"))
    return made


def show_plans() -> None:
    """Print the plans of the ordered pass of DuckDB and Spark, as the engines write them."""
    path = table_of(100_000)
    with open_table(path) as table:
        plain, counted = count_models(table)
        print(_duckdb.order_rows(plain, counted.order, "conf", ("conf", "kind")).explain())
    spark = start_spark()
    with open_table(spark.read.parquet(path)) as table:
        plain, counted = count_models(table)
        _spark.order_rows(plain, counted, "conf").explain("formatted")
    spark.stop()


def count_models(table):
    chosen = choose_columns(table, conf="conf", by="model")
    plain = plain_columns(chosen)
    return plain, count_groups(plain, chosen)


def main() -> None:
    clock = time.process_time if "--processor" in sys.argv else time.perf_counter
    if "--plans" in sys.argv:
        show_plans()
    elif "--growth" in sys.argv:
        finish("logs_growth", growth(clock), options=" --growth", script="logs")
    elif "--spark" in sys.argv:
        rows = option("--rows", 5e6)
        finish("logs_spark", on_spark(rows), options=f" --spark --rows {rows}", script="logs")
    else:
        rows = option("--rows", 5e7)
        finish("logs", [*on_duckdb(rows, clock), *in_memory(clock)])


if __name__ == "__main__":
    main()
