import { type Field, json } from '@rookery/http';

/** The key of a body that stages of interactive auth are completed with. @spec client-server-api#user-interactive-authentication-api */
export const authField: Field<unknown, false> = json.optional(
  'A stage of interactive auth: its `type`, the `session`, and what the stage asks for.',
  json.unknown(),
);
