WITH guard AS ({include:session_guard_delete}),
{include:session_wipe}
SELECT rev FROM guard
