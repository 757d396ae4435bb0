"""From a region's last node to its subscribers: unicast and shared trees, and what they cost."""
