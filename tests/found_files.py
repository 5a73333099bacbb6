"""Files as people have them, and what must be found of each: columns, time, options."""

import gzip
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from millstream.control.discovery.log_lines import WITHIN

CITIES = ("Köln", "München", "Ulm")


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file by its name and content, and what is right for it."""

    name: str
    content: bytes
    columns: Mapping[str, str]
    time: str
    rows: int
    options: Mapping[str, Any] = field(default_factory=dict)
    lateness_us: int = 0
    first: str = ""  # the earliest time, where zone or pattern could be got wrong


def write(folder: Path, file: FoundFile) -> Path:
    path = folder / file.name
    path.write_bytes(file.content)
    return path


def lines(header: str, *rows: str, end: str = "\n") -> str:
    return end.join([header, *rows] if header else rows) + end


def parquet_bytes() -> bytes:
    moments = [datetime(2025, 12, 31, 14, minute, tzinfo=UTC) for minute in (5, 6, 7)]
    table = pa.table({"seen": pa.array(moments, pa.timestamp("us", "UTC")), "city": CITIES})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    return bytes(sink.getvalue().to_pybytes())


OBJECTS = [
    {"id": n, "city": city, "at": f"2025-12-31T14:0{n}:00Z", "tags": ["a", "b"], "ok": True}
    for n, city in enumerate(CITIES)
]
EVENTS = [
    {"meta": {"at": 1735654000123 + n * 1000, "host": f"h{n % 2}"}, "value": n / 2}
    for n in range(4)
]

FILES = (
    FoundFile(
        "plain.csv",
        lines(
            "at,city,n", *(f"2025-12-31 14:0{i}:00,{c},{i}" for i, c in enumerate(CITIES))
        ).encode(),
        {"at": "timestamp", "city": "string", "n": "bigint"},
        "at",
        3,
        {"header": True},
        first="2025-12-31 14:00:00",
    ),
    FoundFile(  # a German spreadsheet
        "bestellungen.csv",
        lines(
            "Bestell-Nr;Datum;Ort;Betrag",
            "00012;31.12.2025 14:05;Köln;1.234,50",
            "00013;31.12.2025 14:06;München;7,25",
            "00014;31.12.2025 14:08;Köln;9,00",
            end="\r\n",
        ).encode("latin-1"),
        {"Bestell_Nr": "string", "Datum": "string", "Ort": "string", "Betrag": "decimal(18,2)"},
        "to_timestamp(Datum, 'dd.MM.yyyy HH:mm')",
        3,
        {"sep": ";", "header": True, "encoding": "ISO-8859-1", "locale": "de-DE"},
        first="2025-12-31 14:05:00",
    ),
    FoundFile(
        "sensors.tsv",
        lines(
            "sensor\tepoch\ttemp", *(f"s{i % 2}\t{1735654000 + i}\t{20 + i / 4}" for i in range(6))
        ).encode(),
        {"sensor": "string", "epoch": "bigint", "temp": "double"},
        "timestamp_seconds(epoch)",
        6,
        {"sep": "\t", "header": True},
        first="2024-12-31 14:06:40",
    ),
    FoundFile(  # no header
        "clicks.csv",
        lines("", *(f"{1735654000123 + i * 250},u{i % 3},/page/{i}" for i in range(8))).encode(),
        {"c1": "bigint", "c2": "string", "c3": "string"},
        "timestamp_millis(c1)",
        8,
    ),
    FoundFile(
        "pipes.csv",
        lines(
            "when|who|amount", "12/30/2025 9:05 AM|ann|1.5", "12/31/2025 10:15 PM|bob|2.5"
        ).encode(),
        {"when": "string", "who": "string", "amount": "double"},
        "to_timestamp(`when`, 'MM/dd/yyyy h:mm a')",
        2,
        {"sep": "|", "header": True},
        first="2025-12-30 09:05:00",
    ),
    FoundFile(  # Excel's "Unicode text"
        "export.csv",
        lines(
            "Zeit;Größe;Ort", "2025-12-31 14:05;3;Köln", "2025-12-31 14:06;4;Ulm", end="\r\n"
        ).encode("utf-16"),
        {"Zeit": "timestamp", "Grosse": "bigint", "Ort": "string"},
        "Zeit",
        2,
        {"sep": ";", "header": True, "encoding": "UTF-16"},
    ),
    FoundFile(
        "prices.csv",
        lines(
            "time,shop,price",
            "2025-12-31T14:05:00+01:00,Müller €,3",
            "2025-12-31T14:06:00+01:00,Co,4",
        ).encode("cp1252"),
        {"time": "timestamp", "shop": "string", "price": "bigint"},
        "time",
        2,
        {"header": True, "encoding": "windows-1252"},
        first="2025-12-31 13:05:00",
    ),
    FoundFile(  # quotes, line breaks, empty text, a byte order mark
        "notes.csv",
        b'\xef\xbb\xbf"at","note","n"\r\n"2025-12-31 14:05:00","she said ""no""\nand left","1"\r\n'
        b'"2025-12-31 14:06:00","","2"\r\n"2025-12-31 14:07:00","a, b",""\r\n',
        {"at": "timestamp", "note": "string", "n": "bigint"},
        "at",
        3,
        {"header": True},
    ),
    FoundFile(  # two columns make a time
        "meter.csv",
        lines("Date;Time;kWh", "30.12.2025;23:45:00;1,5", "31.12.2025;00:00:00;1,25").encode(),
        {"Date": "string", "Time": "string", "kWh": "decimal(18,2)"},
        "to_timestamp(concat(`Date`, ' ', `Time`), 'dd.MM.yyyy HH:mm:ss')",
        2,
        {"sep": ";", "header": True, "locale": "de-DE"},
        first="2025-12-30 23:45:00",
    ),
    FoundFile(  # the newest row first
        "reversed.csv",
        lines(
            "at,level",
            *(f"2025-12-31 14:{59 - i:02}:00,{'warn' if i % 2 else 'info'}" for i in range(10)),
        ).encode(),
        {"at": "timestamp", "level": "string"},
        "at",
        10,
        {"header": True},
        9 * 60_000_000,
    ),
    FoundFile(
        "gaps.csv",
        lines(
            "day,station,rain", "2025-12-29,A,NA", "2025-12-30,A,1.5", "2025-12-31,B,NA"
        ).encode(),
        {"day": "date", "station": "string", "rain": "double"},
        "day",
        3,
        {"header": True, "nullValue": "NA"},
    ),
    FoundFile(
        "array.json",
        json.dumps(OBJECTS, indent=1, ensure_ascii=False).encode(),
        {
            "id": "bigint",
            "city": "string",
            "at": "timestamp",
            "tags": "array<string>",
            "ok": "boolean",
        },
        "at",
        3,
    ),
    FoundFile(
        "events.ndjson",
        "\n".join(json.dumps(row) for row in EVENTS).encode(),
        {"meta": "struct<`at`:bigint,`host`:string>", "value": "double"},
        "timestamp_millis(meta.at)",
        4,
        first="2024-12-31 14:06:40.123000",
    ),
    FoundFile(
        "people.jsonl",
        "\n".join(
            json.dumps(
                {"created_at": f"2025-12-31 14:0{n}:00", "Order": n, "city": c}, ensure_ascii=False
            )
            for n, c in enumerate(CITIES)
        ).encode("latin-1"),
        {"created_at": "timestamp", "Order": "bigint", "city": "string"},
        "created_at",
        3,
        {"encoding": "ISO-8859-1"},
    ),
    FoundFile("seen.parquet", parquet_bytes(), {"seen": "timestamp", "city": "string"}, "seen", 3),
    FoundFile(
        "packed.csv.gz",
        gzip.compress(
            lines(
                "ts,host,bytes", *(f"2025-12-31T14:05:0{i}.5Z,h{i % 2},{i}" for i in range(5))
            ).encode()
        ),
        {"ts": "timestamp", "host": "string", "bytes": "bigint"},
        "ts",
        5,
        {"header": True},
    ),
    FoundFile(  # an application's log
        "app.csv",
        lines(
            "time,level,message",
            '"2025-12-31 14:05:00,123",INFO,started',
            '"2025-12-31 14:05:01,456",WARN,slow',
        ).encode(),
        {"time": "string", "level": "string", "message": "string"},
        "to_timestamp(`time`, 'yyyy-MM-dd HH:mm:ss,SSSSSS')",
        2,
        {"header": True},
        first="2025-12-31 14:05:00.123000",
    ),
    FoundFile(
        "comments.csv",
        lines(
            "# made by a logger", "at,v", "2025-12-31 14:05:00,1", "2025-12-31 14:05:01,2"
        ).encode(),
        {"at": "timestamp", "v": "bigint"},
        "at",
        2,
        {"header": True, "comment": "#"},
    ),
    FoundFile(  # of no telling name
        "access.dat",
        lines("", *(f"10.0.0.{i % 2},31/Dec/2025:14:05:0{i} +0100,200" for i in range(4))).encode(),
        {"c1": "string", "c2": "string", "c3": "bigint"},
        "to_timestamp(c2, 'dd/MMM/yyyy:HH:mm:ss Z')",
        4,
        first="2025-12-31 13:05:00",
    ),
    FoundFile(  # a backslash before quotes; a day above 12 tells the order
        "british.csv",
        lines("date,text", r'03/04/2025,"say \"hi\" now"', '13/04/2025,"plain"').encode(),
        {"date": "string", "text": "string"},
        "to_timestamp(`date`, 'dd/MM/yyyy')",
        2,
        {"header": True, "escape": "\\"},
        first="2025-04-03 00:00:00",
    ),
    FoundFile(  # as mails spell times
        "mails.csv",
        lines(
            "sent,subject", '"Wed, 31 Dec 2025 14:05:00 +0100",hi',
            '"Thu, 01 Jan 2026 00:05:00 +0100",yo',
        ).encode(),
        {"sent": "string", "subject": "string"},
        "to_timestamp(substr(sent, 6), 'dd MMM yyyy HH:mm:ss Z')",
        2,
        {"header": True},
        first="2025-12-31 13:05:00",
    ),
    FoundFile(  # the zone by its region; two columns of one name; lines of Windows
        "regions.csv",
        b"at,v,v\r\n2025-12-31 14:05:00 Europe/Berlin,1,2\r\n2025-12-31 14:06:00 Europe/Berlin,3,4",
        {"at": "timestamp", "v": "bigint", "v_2": "bigint"},
        "at",
        2,
        {"header": True},
        first="2025-12-31 13:05:00",
    ),
    FoundFile(  # spaces around numbers
        "spaced.csv",
        lines("at, name , n", "2025-12-31 14:05:00, a , 1", "2025-12-31 14:06:00, b , 2").encode(),
        {"at": "timestamp", "name": "string", "n": "bigint"},
        "at",
        2,
        {"header": True, "ignoreLeadingWhiteSpace": True},
    ),
    FoundFile(  # a time in parts, sums with commas between thousands
        "parts.csv",
        lines(
            "year,month,day,hour,sum", '2025,12,31,14,"1,234.50"', "2025,12,31,15,7.25"
        ).encode(),
        {
            "year": "bigint", "month": "bigint", "day": "bigint", "hour": "bigint",
            "sum": "decimal(18,2)",
        },
        "make_timestamp(year, month, day, hour, 0, 0)",
        2,
        {"header": True},
        first="2025-12-31 14:00:00",
    ),
    FoundFile(  # decimal commas under a header without one
        "zwei.csv",
        lines("Datum;Wert", *(f"31.12.2025 14:0{i};{i},5" for i in range(4))).encode(),
        {"Datum": "string", "Wert": "decimal(18,1)"},
        "to_timestamp(Datum, 'dd.MM.yyyy HH:mm')",
        4,
        {"sep": ";", "header": True, "locale": "de-DE"},
    ),
    FoundFile(  # thousandths behind a comma
        "logger.csv",
        lines("t;v", *(f"2025-12-31T14:05:00,00{i};{i}" for i in range(4))).encode(),
        {"t": "string", "v": "bigint"},
        "to_timestamp(replace(t, 'T', ' '), 'yyyy-MM-dd HH:mm:ss,SSSSSS')",
        4,
        {"sep": ";", "header": True},
        first="2025-12-31 14:05:00",
    ),
    FoundFile(  # as pandas writes a frame with its index
        "frame.csv",
        lines(",time,x", *(f"{i},2025-12-31 14:05:0{i}+00:00,{i}.5" for i in range(4))).encode(),
        {"c1": "bigint", "time": "timestamp", "x": "double"},
        "time",
        4,
        {"header": True},
        first="2025-12-31 14:05:00",
    ),
    FoundFile(  # spaces before quotes
        "quotes.csv",
        lines("at, town, n", *(f'2025-12-31 14:05:00, "Ulm, {i}", {i}' for i in range(4))).encode(),
        {"at": "timestamp", "town": "string", "n": "bigint"},
        "at",
        4,
        {"header": True, "ignoreLeadingWhiteSpace": True},
    ),
    FoundFile(  # numbers that a double or a bigint would not keep
        "nanos.csv",
        lines("", *(f"176718990{i}000000123,{2**63 + i},x" for i in range(4))).encode(),
        {"c1": "bigint", "c2": "decimal(38,0)", "c3": "string"},
        "timestamp_micros(c1 div 1000)",
        4,
        first="2025-12-31 14:05:00",
    ),
    FoundFile(
        "basic.csv",
        lines("t,v", *(f"20251231T14050{i}Z,{i}" for i in range(4))).encode(),
        {"t": "string", "v": "bigint"},
        "to_timestamp(replace(t, 'T', ' '), 'yyyyMMdd HHmmssX')",
        4,
        {"header": True},
        first="2025-12-31 14:05:00",
    ),
    FoundFile(  # names of zones
        "zones.csv",
        lines("time,v", *(f"2025-12-31 14:05:0{i} {'CET' if i else 'GMT'},{i}" for i in range(4)))
        .encode(),
        {"time": "string", "v": "bigint"},
        "to_timestamp(`time`, 'yyyy-MM-dd HH:mm:ss z')",
        4,
        {"header": True},
        3599_000_000,
        first="2025-12-31 13:05:01",
    ),
    FoundFile(
        "posts.ndjson",
        "\n".join(
            json.dumps({"created_at": f"Wed Dec 31 14:05:0{i} +0100 2025", "text": f"t{i}"})
            for i in range(4)
        ).encode(),
        {"created_at": "string", "text": "string"},
        "to_timestamp(substr(created_at, 5), 'MMM dd HH:mm:ss Z yyyy')",
        4,
        first="2025-12-31 13:05:00",
    ),
    FoundFile(  # a clock of digits beside a day of digits
        "digits.csv",
        lines("datum;zeit;wert", *(f"20251231;{9 + i}0500;{i},5" for i in range(4))).encode(),
        {"datum": "bigint", "zeit": "bigint", "wert": "decimal(18,1)"},
        "to_timestamp(concat(CAST(datum AS STRING), ' ', lpad(zeit, 6, '0')), 'yyyyMMdd HHmmss')",
        4,
        {"sep": ";", "header": True, "locale": "de-DE"},
        first="2025-12-31 09:05:00",
    ),
    FoundFile(  # short years and names of months
        "quotes_of_days.csv",
        lines("DATE,OPEN", "30-DEC-25,1.5", "31-DEC-25,1.6").encode(),
        {"DATE": "string", "OPEN": "double"},
        "to_timestamp(`DATE`, 'dd-MMM-yy')",
        2,
        {"header": True},
        first="2025-12-30 00:00:00",
    ),
    FoundFile(  # days as spreadsheets count them
        "serial.csv",
        lines("Date,Sales", "46022.25,1", "46022.5,2").encode(),
        {"Date": "double", "Sales": "bigint"},
        "timestamp_seconds(round((`Date` - 25569) * 86400))",
        2,
        {"header": True},
        first="2025-12-31 06:00:00",
    ),
    FoundFile(  # months, and years alone
        "months.csv",
        lines("month,n", "2025-11,1", "2025-12,2").encode(),
        {"month": "string", "n": "bigint"},
        "to_timestamp(month, 'yyyy-MM')",
        2,
        {"header": True},
        first="2025-11-01 00:00:00",
    ),
    FoundFile(
        "years.csv",
        lines("Year,Temp", "1999,1.5", "2000,1.6").encode(),
        {"Year": "bigint", "Temp": "double"},
        "make_timestamp(Year, 1, 1, 0, 0, 0)",
        2,
        {"header": True},
        first="1999-01-01 00:00:00",
    ),
    FoundFile(  # one name for two things
        "order.csv",
        lines("time,n,ts", *(f"2025-12-31 14:05:0{i},k{i % 2},u{i % 2}" for i in range(4)))
        .encode(),
        {"time": "timestamp", "n": "string", "ts": "string"},
        "time",
        4,
        {"header": True},
    ),
    FoundFile(  # comments between rows, the last line being one; names with marks
        "relevé.csv",
        lines(
            "# station 7\n# by hand\nat,temp",
            *(f"2025-12-31 14:05:0{i},{i / 2}\n# checked" for i in range(4)),
        ).encode(),
        {"at": "timestamp", "temp": "double"},
        "at",
        4,
        {"header": True, "comment": "#"},
    ),
    FoundFile(  # names in a comment, as numpy writes them
        "numpy.csv",
        lines("# t,x", *(f"176718990{i}.5,1.{i}e+01" for i in range(4))).encode(),
        {"t": "double", "x": "double"},
        "timestamp_seconds(t)",
        4,
        {"comment": "#"},
        first="2025-12-31 14:05:00.5",
    ),
    FoundFile(  # commas between thousands, no space before PM
        "closing.csv",
        lines(
            "Date,Volume,Close",
            *(f'12/{30 + i}/2025 2:05:00pm,"{i + 5},000",{i}.5' for i in range(2)),
        ).encode(),
        {"Date": "string", "Volume": "decimal(18,0)", "Close": "double"},
        "to_timestamp(`Date`, 'MM/dd/yyyy h:mm:ssa')",
        2,
        {"header": True},
        first="2025-12-30 14:05:00",
    ),
    FoundFile(  # hours as weather services write them: as seconds they would be in 2034
        "klima.csv",
        lines("ID;MESS_DATUM;TT;eor", *(f"  44;20251231{i:02};  {i}.5;eor" for i in range(5)))
        .encode(),
        {"ID": "bigint", "MESS_DATUM": "bigint", "TT": "double", "eor": "string"},
        "to_timestamp(CAST(MESS_DATUM AS STRING), 'yyyyMMddHH')",
        5,
        {"sep": ";", "header": True, "ignoreLeadingWhiteSpace": True},
        first="2025-12-31 00:00:00",
    ),
    FoundFile(  # a meter's midnight is the end of its day
        "lastgang.csv",
        lines("Tag;Uhrzeit;kW", *(f"30.12.2025;{i:02}:00;{i}" for i in range(1, 25))).encode(),
        {"Tag": "string", "Uhrzeit": "string", "kW": "bigint"},
        "timestampadd(MINUTE, 60 * CAST(substring_index(Uhrzeit, ':', 1) AS INT)"
        " + CAST(substring_index(Uhrzeit, ':', -1) AS INT), to_timestamp(Tag, 'dd.MM.yyyy'))",
        24,
        {"sep": ";", "header": True},
        first="2025-12-30 01:00:00",
    ),
    FoundFile(
        "day_of_year.csv",
        lines("year,doy,rain", *(f"2025,{i},{i}.5" for i in (59, 60, 61))).encode(),
        {"year": "bigint", "doy": "bigint", "rain": "double"},
        "timestampadd(DAY, doy - 1, make_timestamp(year, 1, 1, 0, 0, 0))",
        3,
        {"header": True},
        first="2025-02-28 00:00:00",
    ),
    FoundFile(
        "photos.csv",
        lines("name,,taken", *(f"p{i},{i},2025:12:31 14:05:0{i}" for i in range(3))).encode(),
        {"name": "string", "c2": "bigint", "taken": "string"},
        "to_timestamp(taken, 'yyyy:MM:dd HH:mm:ss')",
        3,
        {"header": True},
        first="2025-12-31 14:05:00",
    ),
    FoundFile(
        "tokyo.csv",
        lines("日時,場所,値", *(f"2025年12月{31 - i}日,東京,{i}" for i in (1, 0)))
        .encode("shift_jis"),
        {"日時": "string", "場所": "string", "値": "bigint"},
        "to_timestamp(`日時`, 'yyyy年MM月dd日')",
        2,
        {"header": True, "encoding": "Shift_JIS"},
        first="2025-12-30 00:00:00",
    ),
    FoundFile(
        "moscow.csv",
        lines("дата;город;n", *(f"31.12.2025 14.0{i};Москва;{i}" for i in range(3)))
        .encode("cp1251"),
        {"дата": "string", "город": "string", "n": "bigint"},
        "to_timestamp(`дата`, 'dd.MM.yyyy HH.mm')",
        3,
        {"sep": ";", "header": True, "encoding": "windows-1251"},
        first="2025-12-31 14:00:00",
    ),
    FoundFile(
        "deep.ndjson",
        "\n".join(
            json.dumps({"a": {"b": {"time": f"2025-12-31T14:05:0{i}Z"}}, "n": i}) for i in range(3)
        ).encode(),
        {"a": "struct<`b`:struct<`time`:timestamp>>", "n": "bigint"},
        "a.b.`time`",
        3,
        first="2025-12-31 14:05:00",
    ),
    FoundFile(  # the newest first, in nanoseconds
        "spans.ndjson",
        "\n".join(
            json.dumps({"k": f"k{i % 2}", "t": 1767189909_000000123 - i * 10**9}) for i in range(5)
        ).encode(),
        {"k": "string", "t": "bigint"},
        "timestamp_micros(t div 1000)",
        5,
        lateness_us=4_000_000,
        first="2025-12-31 14:05:05",
    ),
    FoundFile(  # a zone a row
        "flights.csv",
        lines(
            "departure,time_zone,flight",
            "2025-07-01 10:00:00,Europe/Berlin,a",
            "2025-07-01 09:30:00,Europe/London,b",
            "2025-12-31 05:00:00,America/New_York,c",
        ).encode(),
        {"departure": "timestamp", "time_zone": "string", "flight": "string"},
        "to_utc_timestamp(departure, time_zone)",
        3,
        {"header": True},
        first="2025-07-01 08:00:00",
    ),
    FoundFile(
        "stations.csv",
        lines(
            "date,time,tz,v", "2025-06-30,05:00:00,EDT,1", "2025-12-31,05:00:00,EST,2"
        ).encode(),
        {"date": "date", "time": "string", "tz": "string", "v": "bigint"},
        "to_utc_timestamp(to_timestamp(concat(CAST(date AS STRING), ' ', `time`), "
        "'yyyy-MM-dd HH:mm:ss'), CASE tz WHEN 'EDT' THEN '-04:00' WHEN 'EST' THEN '-05:00' END)",
        2,
        {"header": True},
        first="2025-06-30 09:00:00",
    ),
    *(
        FoundFile(
            name,
            "".join(line.format(i) + "\n" for i in range(2)).encode(),
            {"value": "string"},
            f"to_timestamp({time})",
            2,
            first=first,
        )
        for name, line, time, first in (
            (  # as PostgreSQL logs
                "pg.log",
                "2025-12-31 14:05:0{}.123 CET [12] LOG:  ready",
                f"regexp_extract(value, '{WITHIN[0].pattern}', 0), 'yyyy-MM-dd HH:mm:ss.SSSSSS z'",
                "2025-12-31 13:05:00.123",
            ),
            (
                "ruby.log",
                "2025-12-31 14:05:0{} +0100 INFO ready",
                "substr(value, 1, 25)",
                "2025-12-31 13:05:00",
            ),
            (
                "php.log",
                "[2025-12-31 14:05:0{}] local.ERROR: no, {{}}",
                f"regexp_extract(value, '{WITHIN[1].pattern}', 0)",
                "2025-12-31 14:05:00",
            ),
            (  # as a web server logs errors
                "error.log",
                "[Wed Dec 31 14:05:0{}.902022 2025] [core:error] [pid 3] no such file",
                f"substr(regexp_extract(value, '{WITHIN[2].pattern}', 0), 5), "
                "'MMM dd HH:mm:ss.SSSSSS yyyy'",
                "2025-12-31 14:05:00.902022",
            ),
            (
                "catalina.log",
                "31-Dec-2025 14:05:0{}.123 INFO [main] ready",
                f"regexp_extract(value, '{WITHIN[3].pattern}', 0), 'dd-MMM-yyyy HH:mm:ss.SSSSSS'",
                "2025-12-31 14:05:00.123",
            ),
            ("table.txt", "2025-12-3{}  BER   7", "substr(value, 1, 10)", "2025-12-30 00:00:00"),
        )
    ),
)  # fmt: skip
