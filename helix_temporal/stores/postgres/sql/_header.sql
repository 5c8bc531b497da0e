{include:header_columns}, {include:sound} AS sound
