import { compileSchema, type Infer, json } from '@rookery/http';

/** MSC4491: one reason for all invites, and reasons by user. */
export const inviteReasonKey = 'uk.timedout.msc4491.invite_reason';
export const inviteReasonsKey = 'uk.timedout.msc4491.invite_reasons';

const text = json.string();

/** The body of a request to create a room. */
export const createRoomSchema = json.object({
  visibility: json.optional('Whether the room is in the directory of the server.', json.enum('public', 'private')),
  room_alias_name: json.optional('The localpart of an alias for the room.', text),
  name: json.optional('What the room is called.', text),
  topic: json.optional('What the room is about.', text),
  invite: json.optional('The users who are invited.', json.array(text)),
  invite_3pid: json.optional(
    'The people who are invited by an address.',
    json.array(
      json.object({
        id_server: json.required('The identity server that may know whose the address is.', text),
        id_access_token: json.optional('A token of that server.', text),
        medium: json.required('The kind of the address: `email` or `msisdn`.', text),
        address: json.required('The address.', text),
      }),
    ),
  ),
  room_version: json.optional('The version of the room; that of the settings unless given.', text),
  creation_content: json.optional('Further keys of the content of `m.room.create`.', json.anyObject()),
  initial_state: json.optional(
    'State events that the room begins with, after those of the preset.',
    json.array(
      json.object({
        type: json.required('The type of the event.', text),
        state_key: json.optional('Its state key; empty unless given.', text),
        content: json.required('Its content.', json.anyObject()),
      }),
    ),
  ),
  preset: json.optional(
    'What the state of the room begins with; it follows from the visibility unless given.',
    json.enum('private_chat', 'public_chat', 'trusted_private_chat'),
  ),
  is_direct: json.optional('Whether the invites say that this is a direct chat.', json.boolean()),
  power_level_content_override: json.optional(
    'Keys that replace those of the content of `m.room.power_levels`.',
    json.anyObject(),
  ),
  [inviteReasonKey]: json.optional('The reason of all invites (MSC4491).', json.string()),
  [inviteReasonsKey]: json.optional('The reason of an invite, by user (MSC4491).', json.record(json.string())),
});

/** Body of `createRoom`; its shape was checked, its values were not. */
export type CreateRoomRequest = Infer<typeof createRoomSchema>;

/** Checks that something is the body of such a request. @throws MatrixError 400 naming what is wrong */
export const checkCreateRoom = compileSchema(createRoomSchema);
