"""Many pods from a recorded one, which differ as pods of JobSets differ."""

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_FIXTURES: Final = Path(__file__).parents[2] / "fixtures" / "pods"
PENDING: Final = (_FIXTURES / "pending.json").read_text().rstrip("\n")
RUNNING: Final = (_FIXTURES / "running.json").read_text().rstrip("\n")

_TIME: Final = re.compile("2026-01-05T09:00:00Z")
_KEY: Final = re.compile(r'(?<=job-key":")[0-9a-f]{40}')
_INDEX: Final = re.compile(r'(?<=job-completion-index":")[01]')
_POD: Final = re.compile('job-node-0-[01](?=[-"])')


def similar_pod(text: str, job: int, index: int, second: int = 0) -> str:
    """Return a recorded pod as the pod of another JobSet, with another index in it.

    *second* is when it became what it is, after its JobSet was made.
    """
    name = f"train-{job:05d}"
    for number, of in enumerate((f"pod {job} {index}", f"job {job}", f"jobset {job}")):
        text = text.replace(f"{number:08x}-0000-4000-8000-000000000000", _uid(of))
    text = _KEY.sub(hashlib.sha1(name.encode()).hexdigest(), text)
    text = _INDEX.sub(str(index), text)
    text = _POD.sub(f"job-node-0-{index}", text)
    text = text.replace("job-node-0", f"{name}-node-0")
    text = text.replace('jobset-name":"job"', f'jobset-name":"{name}"')
    text = text.replace('subdomain":"job"', f'subdomain":"{name}"').replace('.job"', f'.{name}"')
    text = text.replace("hjklm", _letters(f"name {job} {index}"))
    text = text.replace("bcdfg", _letters(f"token {job} {index}"))
    text = text.replace(
        '"resourceVersion":"1000"', f'"resourceVersion":"{1000 + job * 64 + index}"'
    )
    text = text.replace('"recorded-0"', f'"node-{(job * 7 + index) % 500}"')
    text = text.replace('"10.0.0.1"', f'"10.{job >> 8}.{job & 255}.{index}"')
    made = job * 10
    text = _TIME.sub(_time(made), text, count=1)
    return _TIME.sub(_time(made + second), text)


def pods(text: str, count: int, *, of_each_job: int = 8) -> Iterator[str]:
    """Yield pods in the order of a list; of each job some become what they are a second later."""
    for number in range(count):
        job, index = divmod(number, of_each_job)
        yield similar_pod(text, job, index, second=3 + (index * 3 % of_each_job > of_each_job // 2))


def pod_list_page(items: list[str], continues: str = "") -> bytes:
    """Write a page of pods as the API server does."""
    texts = ",".join(item.replace('"kind":"Pod","apiVersion":"v1",', "", 1) for item in items)
    after = f',"continue":"{continues}","remainingItemCount":7' if continues else ""
    head = '{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"9000"'
    return f'{head}{after}}},"items":[{texts}]}}\n'.encode()


def _uid(of: str) -> str:
    found = hashlib.sha1(of.encode()).hexdigest()
    return f"{found[:8]}-{found[8:12]}-4{found[13:16]}-8{found[17:20]}-{found[20:32]}"


def _letters(of: str) -> str:
    found = hashlib.sha1(of.encode()).digest()
    return "".join("bcdfghjklmnpqrstvwxz2456789"[byte % 27] for byte in found[:5])


def _time(second: int) -> str:
    minute, second = divmod(second, 60)
    hour, minute = divmod(minute, 60)
    return f"2026-01-{5 + hour // 24:02d}T{hour % 24:02d}:{minute:02d}:{second:02d}Z"
