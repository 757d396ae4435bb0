#!/bin/sh
# Three places with users, TLS, replicas and gateways: what is started when masters, replicas and sentinels run.
#
#   ./start.sh users       once, and again for each server that is added: users on masters, replicas and sentinels
#   ./start.sh place n1    in the place of n1 (as n2 and n3 in theirs): its node, which is a leader candidate, too, and
#                          a gateway; under systemd, each of the two lines is a unit of ../systemd
#
# SENTINELS: host:port of all of them, with commas. CA: the file of the authority that signed the servers' certificates.
# CERTIFICATE, KEY, KEYS: of the gateway, for TLS and for tokens (gamecast token).
# ADMIN: the password of the default user, for users only. USERS: the file with the passwords of the users.
set -eu
: "${SENTINELS:?}" "${CA:?}" "${USERS:=users.json}" "${GAMECAST:=gamecast}"

# A URL of a node's group, as a user of gamecast, or as nobody: so nodes are registered.
url() { # node [user]
    finder="&sentinel_username=finder&sentinel_password=$(password finder)"
    user=${2:+"$2:$(password "$2")@"}
    echo "rediss+sentinel://$user$SENTINELS/$1?replicas=1&ssl_ca_certs=$CA$finder"
}

password() {
    python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))[sys.argv[2]])' "$USERS" "$1"
}

case ${1:-} in
    users)
        : "${ADMIN:?}"
        set --
        for node in n1 n2 n3; do
            set -- "$@" "rediss+sentinel://:$ADMIN@$SENTINELS/$node?ssl_ca_certs=$CA&sentinel_password=$ADMIN"
        done
        exec "$GAMECAST" users create "$@" --file "$USERS"
        ;;
    place)
        node=$2
        "$GAMECAST" node --name "$node" --replicas 1 --redis "$(url "$node")" --control "$(url n1 manager)" --log json &
        trap 'kill $!' TERM INT
        "$GAMECAST" gateway "$(url n1 gateway)" --watch-url "$(url n1 watcher)" --keys "${KEYS:-keys.json}" \
            --host "${LISTEN:-0.0.0.0}" --port "${PORT:-8080}" --admin "${METRICS:-127.0.0.1:9090}" \
            --tls-certificate "$CERTIFICATE" --tls-key "$KEY" --log json &
        trap 'kill $(jobs -p)' TERM INT
        wait
        ;;
    *)
        sed -n '2,12s/^# \{0,1\}//p' "$0" >&2
        exit 2
        ;;
esac
