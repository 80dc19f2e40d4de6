import type { RoomKind } from './config.js';

type Body = Readonly<Record<string, unknown>>;

/** The initial state of a request to create a room, as far as it is a list of objects. */
export const initialState = (body: Body): readonly Body[] =>
  Array.isArray(body['initial_state'])
    ? body['initial_state'].filter((item): item is Body => typeof item === 'object' && item !== null)
    : [];

const contentOf = (item: Body | undefined): Body =>
  (typeof item?.['content'] === 'object' && item['content'] !== null ? item['content'] : {}) as Body;

/** What a room will be that somebody asks for. */
export function kindsOf(body: Body): ReadonlySet<RoomKind> {
  const state = initialState(body);
  const last = (type: string): Body | undefined =>
    state.findLast((item) => item['type'] === type && (item['state_key'] ?? '') === '');
  const rules = contentOf(last('m.room.join_rules'))['join_rule'];
  const preset = body['preset'] ?? (body['visibility'] === 'public' ? 'public_chat' : 'private_chat');
  const isPublic = rules === undefined ? preset === 'public_chat' : rules === 'public';
  const found: RoomKind[] = ['any', isPublic ? 'public' : 'private'];
  if (body['is_direct'] === true) found.push('direct');
  if (last('m.room.encryption') !== undefined) found.push('encrypted');
  return new Set(found);
}
