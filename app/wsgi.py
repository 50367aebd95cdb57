"""The WSGI application that a web server imports: `gunicorn app.wsgi:app`."""

from app.factory import create_app
from app.wiring import build_front_door
from config.logs import set_up_logging
from config.settings import Settings

_settings = Settings()
set_up_logging(_settings.log_level)
app = create_app(build_front_door(_settings))
