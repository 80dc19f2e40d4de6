import { compileSchema } from '@rookery/http';

/** MSC4491: one reason for all invites, and reasons by user. */
export const inviteReasonKey = 'uk.timedout.msc4491.invite_reason';
export const inviteReasonsKey = 'uk.timedout.msc4491.invite_reasons';

const text = { type: 'string' };

/** The body of a request to create a room. */
export const createRoomSchema = {
  properties: {
    visibility: { enum: ['public', 'private'] },
    room_alias_name: text,
    name: text,
    topic: text,
    invite: { type: 'array', items: text },
    invite_3pid: {
      type: 'array',
      items: {
        type: 'object',
        required: ['id_server', 'medium', 'address'],
        properties: { id_server: text, id_access_token: text, medium: text, address: text },
      },
    },
    room_version: text,
    creation_content: { type: 'object' },
    initial_state: {
      type: 'array',
      items: {
        type: 'object',
        required: ['type', 'content'],
        properties: { type: text, state_key: text, content: { type: 'object' } },
      },
    },
    preset: { enum: ['private_chat', 'public_chat', 'trusted_private_chat'] },
    is_direct: { type: 'boolean' },
    power_level_content_override: { type: 'object' },
    [inviteReasonKey]: { type: 'string' },
    [inviteReasonsKey]: { type: 'object', additionalProperties: { type: 'string' } },
  },
};

/** Checks that something is the body of such a request. @throws MatrixError 400 naming what is wrong */
export const checkCreateRoom = compileSchema(createRoomSchema);
