"""What is said of cards that may not count, besides what allowing.py says: sentences only."""

from discoveryd.core.verdict import Reason

QUOTA_RULE = "quota"


def unknown_owner(file: str) -> Reason:
    """Return why a file of nobody in particular may not count where owners do."""
    return Reason(
        rule="not_allowed",
        message=(
            f"the owner of {file} has no number in the daemon's user namespace, and on this host "
            "owners count. Run the daemon where all users of the directory are known, or give the "
            "file to one who is"
        ),
        field="owner",
    )


def over_quota(owner: int | None, limit: int | None) -> Reason:
    """Return why a card waits whose owner has as many as one user may have."""
    return Reason(
        rule=QUOTA_RULE,
        message=(
            f"uid {owner} has {limit} cards on this host, as many as one user may have. This one "
            "counts as soon as one of the others goes: remove those that are not needed, or ask "
            "the operator for a higher quota"
        ),
        field="owner",
        found=str(owner),
        expected=f"at most {limit} cards",
    )
