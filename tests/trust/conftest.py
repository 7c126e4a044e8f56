from object_store_fixtures import *  # noqa: F403
