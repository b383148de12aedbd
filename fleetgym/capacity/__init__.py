"""Plan capacity for the user's own traffic: import traces, choose fleets, simulate them, measure their risk."""
