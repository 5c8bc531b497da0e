-- rule: models.stored_messages.size_of
(7 + octet_length(m.id) + octet_length(m.body) - 4)
