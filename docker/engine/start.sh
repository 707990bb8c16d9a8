#!/bin/sh
# Starts SGLang with the tiny pair. DEMO_DRAFT names the draft: healthy, or a fault
# that scripts/variants.py derives from the healthy one. Further arguments go to SGLang.
set -eu

tiny=/opt/specscope/models/tiny
draft=${DEMO_DRAFT:-healthy}
if [ "$draft" = healthy ]; then
    draft_path=$tiny/draft
else
    # The script replaces a variant it wrote before: a restart may find its /tmp as it was.
    draft_path=/tmp/draft-$draft
    python3 /opt/specscope/scripts/variants.py "$draft" "$draft_path"
fi

# An engine on a CPU: small pools, one thread, chain drafts of 4 tokens.
exec /opt/sglang/bin/python -m sglang.launch_server \
    --host 0.0.0.0 --port 30000 \
    --device cpu --dtype float32 \
    --model-path "$tiny/target" --served-model-name specscope-tiny \
    --speculative-algorithm EAGLE3 \
    --speculative-draft-model-path "$draft_path" \
    --speculative-num-steps 4 --speculative-eagle-topk 1 --speculative-num-draft-tokens 5 \
    --context-length 1024 --max-total-tokens 8192 --max-running-requests 8 --mem-fraction-static 0.3 \
    --enable-metrics --sleep-on-idle \
    "$@"
