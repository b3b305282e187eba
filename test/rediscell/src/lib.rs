// This package has no code: it only names the version of redis-cell, which run.sh builds.
