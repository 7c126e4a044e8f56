#!/bin/sh
#SBATCH --job-name=flights
#SBATCH --time=02:00:00
#SBATCH --cpus-per-task=4
#SBATCH --mem=8G
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=flights-%j.log
# 60 s before the limit: SIGUSR1 to this shell, which passes it on.
#SBATCH --signal=B:USR1@60
#
# sbatch slurm.sh job.toml. The job checkpoints at the signal and is put back into the queue.

job=${1:-job.toml}
streammc run "$job" --quiet --log-format json --heartbeat "heartbeat-${SLURM_JOB_ID:-0}.json" &
child=$!
trap 'kill -USR1 "$child" 2>/dev/null' USR1
trap 'kill -TERM "$child" 2>/dev/null' TERM

# A signal ends `wait` early: wait again until the program has ended.
while :; do
    wait "$child"
    code=$?
    kill -0 "$child" 2>/dev/null || break
done

case $code in
75 | 143) # locked or transient, or a checkpoint: try again
    scontrol requeue "$SLURM_JOB_ID"
    ;;
esac
exit "$code"
