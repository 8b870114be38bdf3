"""What is usual is read in a shorter way, and to the same end as what is not."""

from urllib.parse import quote

from hypothesis import example, given
from hypothesis import strategies as st

from discoveryd.core.parsing.keys import segment_of
from tests.core.reading import faults, read

BEGINNINGS = st.sampled_from(
    ["http://", "https://", "grpc://", "unix:///", "http:/", "ftp://", "HTTP://", ""]
)
AUTHORITIES = st.text("aZ9.-_:@[]%/ \n", max_size=6) | st.builds(
    "{}:{}".format, st.sampled_from(["h", "127.0.0.1", "[::1]", "a b"]), st.integers(0, 99_999)
)


@given(st.text() | st.text("aZ09/-_.~!$&'()*+,;=:@% \n", max_size=12))
@example("/models/acme/m-1.0~x_y")
@example("\udcff")
def test_a_segment_is_what_quoting_makes_of_the_text(text: str) -> None:
    assert segment_of(text) == quote(text, "!$&'()*+,;=:@", errors="surrogateescape")


@given(BEGINNINGS, AUTHORITIES)
@example("http://", "h:0")
@example("http://", "h:00080")
@example("http://", "h:59999")
@example("http://", "h:60000")
@example("http://", "h:65535")
@example("http://", "h:65536")
@example("http://", "h:")
@example("http://", ":1")
def test_a_url_is_judged_alike_whether_its_path_is_usual_or_not(
    beginning: str, authority: str
) -> None:
    usual, unusual = (
        faults({"display_name": "m", "url": f"{beginning}{authority}{path}"})
        for path in ("/x", "/%41")
    )
    assert usual == unusual


def test_any_usual_url_that_ends_in_v1_is_warned_of() -> None:
    for path in ("/v1", "/v1/", "/a/v1//"):
        assert "appends /v1" in read({"display_name": "m", "url": f"http://h:1{path}"}).warnings[0]


def test_cards_with_the_same_labels_in_the_same_order_share_them() -> None:
    one, same, other = (
        read({"display_name": "m", "labels": labels}).labels
        for labels in (
            {"zone": "a", "tier": "1"},
            {"zone": "a", "tier": "1"},
            {"tier": "1", "zone": "a"},
        )
    )
    assert one is same
    assert list(other or ()) == ["tier", "zone"]


def test_many_or_long_labels_are_nobody_elses() -> None:
    for labels in ({str(n): "a" for n in range(100)}, {"zone": "a" * 200}):
        one, same = (read({"display_name": "m", "labels": labels}).labels for _ in range(2))
        assert one == same == labels
        assert one is not same
