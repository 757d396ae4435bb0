#!/bin/sh
# Other programs' logs, judged: run `sh convert.sh OUT_DIR` here. Each conversion says where the fields of a delivery are.
set -u
cd "$(dirname "$0")" || exit 1
out=$1

# What NATS consumers logged, all in one file: a number as the event's id, times with nanoseconds. Kept.
gamecast convert nats/consumers.jsonl "$out/nats" --to log \
    --field subscriber=consumer --field event=msg.id --field region=subject --field sender=msg.from \
    --field sent_at=msg.sent --field delivered_at=time
gamecast audit "$out/nats"

# What `kcat -J` printed of Kafka, a file for each consumer: server-3 saw two topics' events the other way round. Broken.
gamecast convert kafka "$out/kafka" --to log \
    --field subscriber=@file --field event=payload.event --field region=topic --field sender=key --field sent_at=ts
gamecast audit "$out/kafka"

# What clients in Unity logged, as CSV, and what was published: client-2 lacks an event. Broken.
gamecast convert unity/clients.csv "$out/unity" --to log --published unity/published.csv \
    --field subscriber=player --field event=event_id --field region=zone --field sender=from --field delivered_at=time
gamecast audit "$out/unity"
