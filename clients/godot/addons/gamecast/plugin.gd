@tool
extends EditorPlugin
## Adds the autoload `Gamecast`, a [GamecastClient] that all scenes share.


func _enter_tree() -> void:
	add_autoload_singleton("Gamecast", "res://addons/gamecast/gamecast_client.gd")


func _exit_tree() -> void:
	remove_autoload_singleton("Gamecast")
