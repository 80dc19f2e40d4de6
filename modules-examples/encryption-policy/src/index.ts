import { defineModule } from '@rookery/module-api';
import { parseConfig } from './config.js';

type Body = Readonly<Record<string, unknown>>;

const encryption = { type: 'm.room.encryption', state_key: '', content: { algorithm: 'm.megolm.v1.aes-sha2' } };

/** The initial state of a request to create a room, as far as it is a list of objects. */
const initialState = (body: Body): readonly Body[] =>
  Array.isArray(body.initial_state)
    ? body.initial_state.filter((item): item is Body => typeof item === 'object' && item !== null)
    : [];

const contentOf = ({ content }: Body): Body => (typeof content === 'object' && content !== null ? content : {}) as Body;

/** Whether anybody may join the room: its own join rules come before those of the preset. */
function isPublic(body: Body): boolean {
  const rules = initialState(body).findLast(
    ({ type, state_key: key = '' }) => type === 'm.room.join_rules' && key === '',
  );
  if (rules) return contentOf(rules).join_rule === 'public';
  return body.preset === 'public_chat' || (body.preset === undefined && body.visibility === 'public');
}

/** Something of the same name that encrypts nothing does not count. */
const encrypts = (item: Body): boolean =>
  item.type === encryption.type && (item.state_key ?? '') === '' && typeof contentOf(item).algorithm === 'string';

/** Messages that say something: reactions and redactions stay plain in encrypted rooms. */
const plainMessages: ReadonlySet<string> = new Set(['m.room.message', 'm.sticker', 'm.poll.start', 'm.location']);

/** Encrypts new rooms, keeps encryption out of public rooms and plain messages out of encrypted ones. */
export default defineModule({
  name: 'encryption-policy',
  parseConfig,
  register(api, { newRooms, forbidInPublic, refusePlain }) {
    api.registerThirdPartyRulesCallbacks({
      onCreateRoom(_requester, body) {
        if (newRooms === 'none' || (newRooms === 'private' && isPublic(body))) return;
        const state = initialState(body);
        if (state.some(encrypts)) return;
        return { ...body, initial_state: [...state, encryption] };
      },

      async checkEventAllowed(event, state) {
        // What is signed elsewhere cannot be undone here.
        if (event.eventId !== undefined) return true;
        if (refusePlain && event.stateKey === undefined && plainMessages.has(event.type)) {
          const encrypted = await state.get('m.room.encryption');
          if (encrypted) return { allowed: false, message: 'Messages in this room have to be encrypted' };
        }
        if (forbidInPublic && event.type === 'm.room.encryption' && event.stateKey === '') {
          const joinRules = await state.get('m.room.join_rules');
          if (joinRules?.content.join_rule === 'public') {
            return { allowed: false, message: 'Public rooms are not encrypted on this server' };
          }
        }
        if (forbidInPublic && event.type === 'm.room.join_rules' && event.content.join_rule === 'public') {
          if (await state.get('m.room.encryption')) {
            return { allowed: false, message: 'Encrypted rooms are not made public on this server' };
          }
        }
        return true;
      },
    });
  },
});
