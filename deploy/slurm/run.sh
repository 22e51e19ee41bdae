#!/bin/bash
# sbatch deploy/slurm/run.sh experiment=cartpole ...: a run in a job of its own. When the job is preempted or nears its time limit,
# the run saves and ends with code 75, and the job goes back into the queue. It then continues in the same run folder.
# sbatch --array=0-9 deploy/slurm/run.sh --join FOLDER/join.json: ten elastic hosts for a run with launcher external.
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=B:USR1@120
if [ "$1" = --join ]; then # the number of the element is that of the host
    set -- srl.cluster.supervisor "$@" --host "$SLURM_ARRAY_TASK_ID"
else
    if [ -n "$SLURM_ARRAY_TASK_ID" ]; then # of a job array: the number of the element is the seed
        set -- "$@" "seed=$SLURM_ARRAY_TASK_ID"
    fi
    set -- srl.launch --resume-or-start "job-$SLURM_JOB_ID" "$@"
fi
${PYTHON:-python} -m "$@" &
run=$!
trap 'kill -USR1 $run' USR1
trap 'kill -TERM $run' TERM
while wait $run; code=$?; [ $code -gt 128 ] && kill -0 $run 2> /dev/null; do :; done # a signal ends `wait`, not the run
if [ $code = 75 ]; then
    scontrol requeue "$SLURM_JOB_ID"
fi
exit $code
