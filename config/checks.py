"""What a setting's value must look like. No message quotes the value: it may be a secret."""

import re
from pathlib import Path
from typing import Annotated
from urllib.parse import SplitResult, urlsplit

from pydantic import AfterValidator, BeforeValidator, SecretStr

_PRINTABLE = re.compile(r"[\x21-\x7e]+")
_POSTGRES = ("postgresql", "postgres")
_REDIS = ("redis", "rediss", "unix")
_HTTP = ("http", "https")
_INDEX = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}")


def _stripped(value: object) -> object:
    """Files and shells leave line ends behind, which no address and no key has."""
    return value.strip() if isinstance(value, str) else value


def _upper(value: object) -> object:
    return value.strip().upper() if isinstance(value, str) else value


def _split(url: str, schemes: tuple[str, ...]) -> SplitResult:
    if not _PRINTABLE.fullmatch(url):
        raise ValueError("holds white space or a character that is not ASCII; percent-encode it")
    try:
        parts = urlsplit(url)
    except ValueError:
        raise ValueError("is not an address that can be read; is a bracket left open?") from None
    if parts.scheme not in schemes or "://" not in url:
        raise ValueError(f"does not begin with {' or '.join(f'{name}://' for name in schemes)}")
    return parts


def _check_port(parts: SplitResult) -> None:
    try:
        _ = parts.port
    except ValueError:
        raise ValueError("has a port that is no number from 0 to 65535") from None


def _web_address(url: str) -> str:
    if "://" not in url:
        raise ValueError("has no scheme: http:// is missing")
    parts = _split(url, _HTTP)
    _check_port(parts)
    if not parts.hostname:
        raise ValueError("names no host")
    return url


def _search_address(url: str) -> str:
    if "@" in urlsplit(_web_address(url)).netloc:
        raise ValueError(
            "holds an account; POIMEN_OPENSEARCH_USER and POIMEN_OPENSEARCH_PASSWORD take it"
        )
    return url


def _index_name(name: str) -> str:
    if not _INDEX.fullmatch(name):
        raise ValueError("is not 1 to 100 of a-z 0-9 . _ - beginning with a letter or digit")
    return name


def _database_address(secret: SecretStr) -> SecretStr:
    # Several hosts with a port each are allowed there, so the port is left to the driver.
    _split(secret.get_secret_value(), _POSTGRES)
    return secret


def _redis_address(secret: SecretStr) -> SecretStr:
    parts = _split(secret.get_secret_value(), _REDIS)
    if parts.scheme == "unix":
        if not parts.path:
            raise ValueError("names no socket: unix:///path/to/socket")
        return secret
    _check_port(parts)
    return secret


def _key(secret: SecretStr) -> SecretStr:
    if not _PRINTABLE.fullmatch(secret.get_secret_value()):
        raise ValueError("holds a character that no key has; copy it again")
    return secret


def folder(path: Path) -> Path:
    """A folder with `~` replaced, which only a shell does by itself."""
    try:
        found = path.expanduser()
    except RuntimeError:
        raise ValueError("begins with ~ for an account that has no home folder") from None
    if _is_file(found):
        raise ValueError("is not a folder")
    return found


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except PermissionError:  # told where the folder is used
        return False


_Text = BeforeValidator(_stripped)
WebAddress = Annotated[str, AfterValidator(_web_address), _Text]
SearchAddress = Annotated[str, AfterValidator(_search_address), _Text]
IndexName = Annotated[str, AfterValidator(_index_name), _Text]
DatabaseAddress = Annotated[SecretStr, AfterValidator(_database_address), _Text]
RedisAddress = Annotated[SecretStr, AfterValidator(_redis_address), _Text]
Key = Annotated[SecretStr, AfterValidator(_key), _Text]
Folder = Annotated[Path, AfterValidator(folder), _Text]
UpperCase = BeforeValidator(_upper)
