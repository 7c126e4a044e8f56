from small_job_fixtures import *  # noqa: F403
