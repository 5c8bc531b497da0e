"""What a user of Redis must be allowed to do, tried at the start."""

from typing import Final

from helix_temporal.errors import InvalidConfigError
from helix_temporal.stores.redis._connection import Connection
from helix_temporal.stores.redis._scripts import Script

NEEDED: Final = (
    "EXISTS KEY",
    "HDEL KEY f",
    "HEXISTS KEY f",
    "HGET KEY f",
    "HKEYS KEY",
    "HLEN KEY",
    "HMGET KEY f",
    "HSCAN KEY 0",
    "HSET KEY f v f",
    "HSETNX KEY f v",
    "HVALS KEY",
    "PERSIST KEY",
    "PEXPIRE KEY 1000",
    "PEXPIREAT KEY 1",
    "PTTL KEY",
    "RENAME KEY KEY",
    "SCAN 0 COUNT 1",
    "TIME",
    "UNLINK KEY",
    "XADD KEY - f v",
    "XRANGE KEY - + COUNT 1",
    "XREAD COUNT 1 STREAMS KEY 0",
    "XTRIM KEY MAXLEN 1",
    "ZADD KEY - m",
    "ZCARD KEY",
    "ZLEXCOUNT KEY - +",
    "ZRANGEBYLEX KEY - +",
    "ZRANGEBYSCORE KEY 0 1",
    "ZREM KEY m",
    "ZREVRANGEBYLEX KEY + -",
    "ZSCAN KEY 0",
    "ZSCORE KEY m",
)
"""A harmless call of each command that stores use, beside EVAL, EVALSHA and INFO.

The server looks at rights before it looks at values: some of these fail, so that they write nothing.  What
the others write is gone at the end.
"""

_TRY: Final = Script(
    "rights",
    """local refused = {}
for _, call in ipairs(ARGV) do
  local words = {}
  for word in string.gmatch(call, '%S+') do words[#words + 1] = word == 'KEY' and KEYS[1] or word end
  local reply = redis.pcall(unpack(words))
  local told = type(reply) == 'table' and reply.err or ''
  for _, sign in ipairs({'NOPERM', 'ACL failure', 'The user executing the script'}) do
    if string.find(told, sign, 1, true) then
      refused[#refused + 1] = words[1]
      break
    end
  end
end
return refused
""",
)


async def check_rights(connection: Connection) -> None:
    """Try every command that the stores use, as the scripts run them, on a key that nothing else uses.

    It works for a user who may not ask what it may do.

    Raises:
        InvalidConfigError: The user lacks some; it names them, and what to grant.
    """
    # No id's form has a colon.
    key = f"{connection.prefix}{{:check}}:rights"
    # By its text first, so that the server then knows its hash.
    refused = await connection.command("EVAL", _TRY.text, 1, key, *NEEDED)
    await connection.run(_TRY, [key], "TIME")
    if refused:
        names = [each.decode() for each in refused]
        raise InvalidConfigError(
            f"Redis at {connection.where} refuses the user {', '.join(names)}; grant:"
            f" ACL SETUSER <user> {' '.join(f'+{each.lower()}' for each in names)}",
            commands=" ".join(names),
        )
