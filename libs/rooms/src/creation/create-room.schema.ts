import { compileSchema, type Infer, json } from '@rookery/http';

/** MSC4491: one reason for all invites, and reasons by user. */
export const inviteReasonKey = 'uk.timedout.msc4491.invite_reason';
export const inviteReasonsKey = 'uk.timedout.msc4491.invite_reasons';

const text = json.string();

/** The body of a request to create a room. */
export const createRoomSchema = json.object({
  visibility: json.optional(json.enum('public', 'private')),
  room_alias_name: json.optional(text),
  name: json.optional(text),
  topic: json.optional(text),
  invite: json.optional(json.array(text)),
  invite_3pid: json.optional(
    json.array(json.object({ id_server: text, id_access_token: json.optional(text), medium: text, address: text })),
  ),
  room_version: json.optional(text),
  creation_content: json.optional(json.anyObject()),
  initial_state: json.optional(
    json.array(json.object({ type: text, state_key: json.optional(text), content: json.anyObject() })),
  ),
  preset: json.optional(json.enum('private_chat', 'public_chat', 'trusted_private_chat')),
  is_direct: json.optional(json.boolean()),
  power_level_content_override: json.optional(json.anyObject()),
  [inviteReasonKey]: json.optional(json.string()),
  [inviteReasonsKey]: json.optional(json.record(json.string())),
});

/** Body of `createRoom`; its shape was checked, its values were not. */
export type CreateRoomRequest = Infer<typeof createRoomSchema>;

/** Checks that something is the body of such a request. @throws MatrixError 400 naming what is wrong */
export const checkCreateRoom = compileSchema(createRoomSchema);
