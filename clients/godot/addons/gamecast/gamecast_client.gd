class_name GamecastClient
extends Node
## A client of the gamecast gateway (docs/gateway.md has the protocol).
##
## It reconnects by itself and resumes: events come in order, none is lost, and nothing is
## published twice. Connect the signals, then call [method connect_to_gateway].
## [codeblock]
## Gamecast.event_received.connect(func(event): print(event.sender, event.payload))
## Gamecast.connect_to_gateway("wss://game.example", token)
## await Gamecast.subscribe(["forest"])
## var receipt: Dictionary = await Gamecast.publish("forest", {"type": "spell"})
## [/codeblock]

## A connection was opened, the first one or a later one.
signal connected(name_of_client: String)
## The connection was lost. If [param is_final], the client stops; else it connects again.
signal closed(code: int, reason: String, is_final: bool)
## An event, in order. Bytes are a [PackedByteArray] in `payload`.
signal event_received(event: Dictionary)
## Events that will not come, in their place.
signal gap_received(gap: Dictionary)
## The keys of a region, with all of its parts.
signal state_received(state: Dictionary)
## An error that belongs to no call.
signal error_reported(error: Dictionary)

const PROTOCOL_VERSION := 1
const WAITS_MS: Array[int] = [50, 100, 250, 500, 1000, 2000, 5000]
## Close codes after which the same client must not connect again. The token is the only one.
const FINAL: Array[int] = [1003, 1009, 4000, 4001, 4003, 4009, 4010]
const UNANSWERED_MAX := 1024
const CONNECT_TIMEOUT_MS := 10000

## The largest message of several events that the gateway may send.
var message_bytes_max := 60000
## Godot drops connections over larger messages: one event has 64 KiB, a third more as base64.
var inbound_buffer_size := 1 << 20
var outbound_buffer_size := 1 << 20
## The name that other clients see; the gateway chooses one if it is empty.
var client_name := ""

var _url := ""
var _token := ""
var _socket: WebSocketPeer = null
var _is_greeted := false
var _is_open := false
var _is_wanted := false
var _attempt := 0
var _connect_at_ms := 0
var _heard_at_ms := 0
var _asked_at_ms := 0
var _heartbeat_ms := 20000
var _limits := {}
var _next_id := 1
## Region → the position to resume from, "" while none is known.
var _positions := {}
## Id → [GamecastClient.Call] without an answer, in order.
var _calls := {}
var _states := {}


## A call that waits for its answer.
class Call:
	extends RefCounted
	signal answered(answer: Dictionary)
	var message := {}
	var is_sent := false
	## Of a publish: the position of its region when it was first sent.
	var after := ""


## Connect to a gateway, such as "wss://game.example", and stay connected until [method close].
func connect_to_gateway(url: String, token := "") -> void:
	_url = url if url.ends_with("/v1/socket") else url.trim_suffix("/") + "/v1/socket"
	_token = token
	_is_wanted = true
	_attempt = 0
	_connect_at_ms = Time.get_ticks_msec()


## Close the connection. Calls without an answer get the error "closed".
func close() -> void:
	_is_wanted = false
	if _socket != null:
		_socket.close(1000)
		_socket.poll()
	_end(1000, "closed by the game")


## Join regions. Returns `{"regions": {…}}`, or `{"error": {…}}`: use await.
## [param options] may have `since` or `state`.
func subscribe(regions: Array, options := {}) -> Dictionary:
	for region: String in regions:
		if not _positions.has(region):
			_positions[region] = ""
	var message := {"type": "subscribe", "regions": regions}
	message.merge(options)
	return await _call(message)


## Leave regions. Returns `{}`, or `{"error": {…}}`: use await.
func unsubscribe(regions: Array) -> Dictionary:
	for region: String in regions:
		_positions.erase(region)
	if not _is_open:
		return {}
	return await _call({"type": "unsubscribe", "regions": regions})


## Publish any JSON, or a PackedByteArray. Returns `{"region", "position"}`, or `{"error": {…}}`.
## [param about] may have `key` and `only_if`.
func publish(region: String, payload: Variant, about := {}) -> Dictionary:
	var message := {"type": "publish", "region": region}
	message.merge(about)
	var size := 0
	if payload is PackedByteArray:
		message["base64"] = Marshalls.raw_to_base64(payload)
		size = (payload as PackedByteArray).size()
	else:
		message["payload"] = payload
		size = JSON.stringify(payload).to_utf8_buffer().size()
	var whole := JSON.stringify(message).to_utf8_buffer().size() + 64
	if size > _limit("payload_bytes") or whole > _limit("message_bytes"):
		return _error("too-large", "the event is over the gateway's limits")
	if _calls.size() >= UNANSWERED_MAX:
		return _error("busy", "too many calls wait for their answers")
	return await _call(message)


## Region → the position after which it continues: pass it as `since` in a later run of the game.
func positions() -> Dictionary:
	var known := {}
	for region: String in _positions:
		if _positions[region] != "":
			known[region] = _positions[region]
	return known


func _process(_delta: float) -> void:
	var now := Time.get_ticks_msec()
	if _socket == null:
		if _is_wanted and now >= _connect_at_ms:
			_open(now)
		return
	_socket.poll()
	if _socket.get_ready_state() == WebSocketPeer.STATE_OPEN and not _is_greeted:
		_is_greeted = true
		_say_hello()
	while _socket != null and _socket.get_available_packet_count() > 0:
		var packet := _socket.get_packet()
		_heard_at_ms = now
		_asked_at_ms = 0
		_hear(packet.get_string_from_utf8() if _socket.was_string_packet() else "")
	if _socket == null:
		return
	if _socket.get_ready_state() == WebSocketPeer.STATE_CLOSED:
		_lose(_socket.get_close_code(), _socket.get_close_reason())
	else:
		_watch(now)


func _open(now: int) -> void:
	_socket = WebSocketPeer.new()
	# Before connecting: a peer takes its buffers when it connects.
	_socket.inbound_buffer_size = inbound_buffer_size
	_socket.outbound_buffer_size = outbound_buffer_size
	_socket.max_queued_packets = 4096
	_socket.supported_protocols = PackedStringArray(["gamecast.v%d" % PROTOCOL_VERSION])
	_is_greeted = false
	_heard_at_ms = now
	_asked_at_ms = now
	if _socket.connect_to_url(_url) != OK:
		_lose(1006, "cannot connect to %s" % _url)


func _say_hello() -> void:
	var hello := {
		"type": "hello",
		"protocol": PROTOCOL_VERSION,
		"message_bytes_max": message_bytes_max,
	}
	if _token != "":
		hello["token"] = _token
	if client_name != "":
		hello["name"] = client_name
	_say(hello)


func _watch(now: int) -> void:
	var patience := _heartbeat_ms if _is_open else CONNECT_TIMEOUT_MS
	if _asked_at_ms > 0 and now - _asked_at_ms > patience:
		_lose(1006, "the gateway is silent")
	elif _is_open and _asked_at_ms == 0 and now - _heard_at_ms > _heartbeat_ms:
		_asked_at_ms = now
		_say({"type": "ping"})


func _hear(text: String) -> void:
	var said: Variant = JSON.parse_string(text)
	if not said is Dictionary or not said.get("type") is String:
		_lose(1006, "the gateway sent what is no message")
		return
	match said["type"]:
		"welcome":
			_begin(said)
		"events":
			if not said.get("events") is Array:
				_lose(1006, "the gateway sent what is no message")
				return
			for item: Variant in said["events"]:
				if not item is Dictionary or not item.has("region"):
					_lose(1006, "the gateway sent what is no event")
					return
				_take(item)
				if _socket == null:
					return  # a handler closed the client
		"acks":
			if said.get("acks") is Array:
				for ack: Variant in said["acks"]:
					if ack is Dictionary:
						_answer(ack.get("id"), ack)
		"subscribed":
			_subscribed(said)
		"unsubscribed":
			_answer(said.get("id"), {})
		"error":
			_refused(said)


func _begin(welcome: Dictionary) -> void:
	client_name = welcome.get("name", client_name)
	_heartbeat_ms = int(welcome.get("heartbeat_ms", _heartbeat_ms))
	_limits = welcome.get("limits", {})
	_asked_at_ms = 0
	_is_open = true
	# One message for all regions: two would have two cuts, and no order between them.
	var since := positions()
	if since.is_empty():
		_attempt = 0
	else:
		_say({"type": "subscribe", "id": "resume", "regions": since.keys(), "since": since})
	for id: int in _calls.keys():
		_send(id)
	connected.emit(client_name)


func _send(id: int) -> void:
	var call_of: Call = _calls[id]
	var message := call_of.message.duplicate()
	message["id"] = id
	match message["type"]:
		"publish":
			if call_of.is_sent and call_of.after == "":
				_answer(id, _error("uncertain", "the event may or may not have been published"))
				return
			if call_of.is_sent:
				message["retry"] = true
				message["after"] = call_of.after
			else:
				call_of.after = _positions.get(message["region"], "")
		"unsubscribe":
			if call_of.is_sent:
				_answer(id, {})  # no resume names these regions
				return
		"subscribe":
			if call_of.is_sent and not _keep_unknown(message):
				return  # the resuming message has these regions
	call_of.is_sent = true
	_say(message)


## Leave the regions in a subscribe that no resume names. Returns whether there are any.
func _keep_unknown(message: Dictionary) -> bool:
	var left: Array = message["regions"].filter(
		func(region: String) -> bool: return _positions.has(region) and not _is_known(region)
	)
	message["regions"] = left
	if message.get("since") is Dictionary:
		var since := {}
		for region: String in left:
			since[region] = message["since"][region]
		message["since"] = since
	return not left.is_empty()


func _is_known(region: String) -> bool:
	return _positions.get(region, "") != ""


func _subscribed(said: Dictionary) -> void:
	var regions: Dictionary = said.get("regions", {})
	_attempt = 0
	for region: String in regions:
		if _positions.get(region) == "":
			_positions[region] = regions[region]
	if not said.get("id") is String:
		_answer(said.get("id"), {"regions": regions})
		return
	for id: int in _calls.keys():
		var message: Dictionary = _calls[id].message
		if message["type"] == "subscribe" and message["regions"].all(_is_known):
			_answer(id, {"regions": regions})


func _take(item: Dictionary) -> void:
	if item.has("state"):
		var values: Dictionary = _states.get(item["region"], {}) if item.get("part", 0) > 0 else {}
		values.merge(item["state"], true)
		_states[item["region"]] = values
		if item.get("more", false):
			return
		_states.erase(item["region"])
		item["state"] = values
		for key: String in values:
			_decode(values[key])
	var places: Dictionary = item.get("positions", {item["region"]: item.get("position")})
	for region: String in places:
		if _positions.has(region) and places[region] is String:
			_positions[region] = places[region]
	if item.has("state"):
		state_received.emit(item)
	elif item.has("gap"):
		gap_received.emit(item)
	else:
		_decode(item)
		event_received.emit(item)


func _decode(item: Dictionary) -> void:
	if item.has("base64"):
		item["payload"] = Marshalls.base64_to_raw(item["base64"])
		item.erase("base64")


func _refused(said: Dictionary) -> void:
	if said.get("id") is String:
		if said.get("retriable", false):
			_lose(1006, said.get("message", ""), int(said.get("retry_after_ms", 0)))
		else:
			_stop(1006, said.get("message", ""))
		return
	var id := int(said["id"]) if said.get("id") != null else 0
	if not _calls.has(id):
		error_reported.emit(said)
		return
	var message: Dictionary = _calls[id].message
	if message["type"] == "subscribe":
		for region: String in message["regions"]:
			if not _is_known(region):
				_positions.erase(region)
	_answer(id, {"error": said})


func _call(message: Dictionary) -> Dictionary:
	var id := _next_id
	_next_id += 1
	var call_of := Call.new()
	call_of.message = message
	_calls[id] = call_of
	# After the caller waits, so that an answer at once is not missed.
	_send_first.call_deferred(id)
	return await call_of.answered


func _send_first(id: int) -> void:
	if not _calls.has(id):
		return
	if not _is_wanted:
		_answer(id, _error("closed", "the client is not connected: call connect_to_gateway"))
	elif _is_open and not _calls[id].is_sent:
		_send(id)


func _answer(id: Variant, answer: Dictionary) -> void:
	# JSON has one kind of number in Godot: a float.
	var number := int(id) if id != null else 0
	if _calls.has(number):
		var call_of: Call = _calls[number]
		_calls.erase(number)
		call_of.answered.emit(answer)


func _say(message: Dictionary) -> void:
	if _socket != null and _socket.get_ready_state() == WebSocketPeer.STATE_OPEN:
		_socket.send_text(JSON.stringify(message))


func _lose(code: int, reason: String, wait_ms := 0) -> void:
	if FINAL.has(code):
		_stop(code, reason)
		return
	_drop()
	var wait := WAITS_MS[mini(_attempt, WAITS_MS.size() - 1)] * randf_range(0.5, 1.5)
	_attempt += 1
	_connect_at_ms = Time.get_ticks_msec() + maxi(wait_ms, int(wait))
	closed.emit(code, reason, false)


func _stop(code: int, reason: String) -> void:
	_is_wanted = false
	_end(code, reason)


func _end(code: int, reason: String) -> void:
	_drop()
	for id: int in _calls.keys():
		var call_of: Call = _calls[id]
		var is_uncertain: bool = call_of.is_sent and call_of.message["type"] == "publish"
		var what := "uncertain" if is_uncertain else "closed"
		_answer(id, _error(what, reason))
	closed.emit(code, reason, true)


func _drop() -> void:
	if _socket != null:
		_socket.close(3000)
	_socket = null
	_is_open = false


func _limit(limit_name: String) -> int:
	return int(_limits.get(limit_name, 1 << 62))


func _error(code: String, message: String) -> Dictionary:
	return {"error": {"code": code, "message": message, "definite": code != "uncertain"}}
