import { createHash } from 'node:crypto';
import { Codes, defineModule, type ModuleEvent, NOT_SPAM } from '@rookery/module-api';
import { parseConfig } from './config.js';
import { isRule, Rules } from './rules.js';

/** So many senders are kept in mind. */
const maxSenders = 10_000;
/** A list that cannot be read is tried again after this long. */
const retryMs = 5_000;
/** A list is read anew after this long, whatever events were missed. */
const freshMs = 300_000;
const cache = 'rules';

/** Refuses whom policy lists ban, and what floods rooms. */
export default defineModule({
  name: 'policy-lists',
  parseConfig,
  register(api, { rooms, exempt, maxMentions, maxRepeats, windowMs }) {
    /** What each list said last, and its room, as this process knows them. */
    const last = new Map<string, { readonly roomId: string; readonly rules: Rules }>();
    const roomIdOf = async (room: string): Promise<string> => {
      if (!room.startsWith('#')) return room;
      try {
        return (await api.lookupRoomAlias(room)).roomId;
      } catch (error) {
        const known = last.get(room)?.roomId;
        if (known === undefined) throw error;
        return known;
      }
    };
    const read = async (room: string): Promise<Rules> => {
      try {
        const roomId = await roomIdOf(room);
        const state = await api.getRoomState(roomId);
        // A room that this server is not in has no state, which does not say that its list is empty.
        if (!state.some(({ type }) => type === 'm.room.create')) throw new Error('this server is not in the room');
        const now = new Rules(state.filter(({ type }) => isRule(type)));
        last.set(room, { roomId, rules: now });
        return now;
      } catch (error) {
        // Nobody is refused because a list cannot be read, and who was banned stays so.
        api.log.warn('A policy list cannot be read', { room, error: String(error) });
        api.delayedBackgroundCall(retryMs, () => api.invalidateCache(cache, room));
        return last.get(room)?.rules ?? new Rules([]);
      }
    };
    const rulesOf = api.registerCachedFunction(cache, read, { ttlMs: freshMs });
    const rules = async (): Promise<Pick<Rules, 'bans' | 'bansUser'>> => {
      const lists = await Promise.all(rooms.map(rulesOf));
      return {
        bans: (kind, entity) => lists.some((list) => list.bans(kind, entity)),
        bansUser: (userId) => lists.some((list) => list.bansUser(userId)),
      };
    };
    const isFlood = floodWatch({ maxRepeats, windowMs, now: () => api.getCurrentTimeMsec() });
    const refusal = (message: string) => ({ errcode: Codes.FORBIDDEN, message });
    const banned = refusal('You are banned from this server');

    api.registerSpamCheckerCallbacks({
      async checkEventForSpam(event) {
        if (exempt.includes(event.sender)) return NOT_SPAM;
        // Whoever is banned may still go.
        if (event.type === 'm.room.member' && event.content['membership'] === 'leave') return NOT_SPAM;
        if ((await rules()).bansUser(event.sender)) return banned;
        if (event.stateKey !== undefined) return NOT_SPAM;
        if (mentionsOf(event) > maxMentions) return refusal('This message mentions too many people');
        if (isFlood(event)) return refusal('You have sent this too often');
        return NOT_SPAM;
      },
      async userMayInvite(inviter, _invitee, roomId) {
        if (exempt.includes(inviter)) return NOT_SPAM;
        const now = await rules();
        return now.bansUser(inviter) || now.bans('room', roomId)
          ? refusal('This invitation is not wanted here')
          : NOT_SPAM;
      },
      async userMayJoinRoom(userId, roomId) {
        if (exempt.includes(userId)) return NOT_SPAM;
        return (await rules()).bans('room', roomId) ? refusal('This room is banned from this server') : NOT_SPAM;
      },
      checkUsernameForSpam: async ({ userId }) => (await rules()).bansUser(userId),
    });
    api.registerThirdPartyRulesCallbacks({
      // An event is told to one process, and a list that has changed is forgotten in all of them.
      async onNewEvent({ roomId, type, stateKey }) {
        // A redaction takes a rule away, and with the first of our users who joins there is a list at all.
        const isOurMember = type === 'm.room.member' && stateKey !== undefined && api.isMine(stateKey);
        if (!isRule(type) && type !== 'm.room.redaction' && !isOurMember) return;
        // Which room an alias is that this process has not looked at yet, it does not know.
        const roomOf = (room: string): string => (room.startsWith('#') ? (last.get(room)?.roomId ?? roomId) : room);
        const changed = rooms.filter((room) => roomOf(room) === roomId);
        await Promise.all(changed.map((room) => api.invalidateCache(cache, room)));
      },
    });
  },
});

function mentionsOf({ content }: ModuleEvent): number {
  const listed = (content['m.mentions'] as { readonly user_ids?: unknown } | undefined)?.user_ids;
  const html = content['formatted_body'];
  const linked = typeof html === 'string' ? new Set(html.match(/matrix\.to\/#\/(?:@|%40)[^"'<>\s]+/g)).size : 0;
  return Math.max(Array.isArray(listed) ? new Set(listed).size : 0, linked);
}

/** Tells of senders who say one thing over and over, in whatever rooms. */
function floodWatch(limits: {
  maxRepeats: number;
  windowMs: number;
  now: () => number;
}): (event: ModuleEvent) => boolean {
  const said = new Map<string, { digest: string; sinceMs: number; times: number }>();
  return ({ sender, content }) => {
    const { body } = content;
    if (typeof body !== 'string' || body.trim() === '') return false;
    const digest = createHash('sha256').update(body.trim().toLowerCase()).digest('base64');
    const nowMs = limits.now();
    const before = said.get(sender);
    const isSame = before?.digest === digest && nowMs - before.sinceMs < limits.windowMs;
    const times = isSame ? before.times + 1 : 1;
    said.delete(sender);
    said.set(sender, { digest, sinceMs: isSame ? before.sinceMs : nowMs, times });
    if (said.size > maxSenders) said.delete(said.keys().next().value!);
    return times > limits.maxRepeats;
  };
}
