import { createHash } from 'node:crypto';
import { Codes, defineModule, type ModuleEvent, NOT_SPAM } from '@rookery/module-api';
import { parseConfig } from './config.js';
import { isRule, Rules } from './rules.js';

/** So many senders are kept in mind. */
const maxSenders = 10_000;
/** A list that cannot be read is tried again after this long. */
const retryMs = 5_000;

/** Refuses whom policy lists ban, and what floods rooms. */
export default defineModule({
  name: 'policy-lists',
  parseConfig,
  register(api, { rooms, exempt, maxMentions, maxRepeats, windowMs }) {
    const ids = new Set<string>();
    let known: Promise<Rules> | undefined;
    const eventsOf = async (room: string): Promise<readonly ModuleEvent[]> => {
      const roomId = room.startsWith('#') ? (await api.lookupRoomAlias(room)).roomId : room;
      ids.add(roomId);
      return (await api.getRoomState(roomId)).filter(({ type }) => isRule(type));
    };
    const load = async (): Promise<Rules> => {
      const lists = await Promise.allSettled(rooms.map(eventsOf));
      for (const [i, list] of lists.entries()) {
        if (list.status === 'fulfilled') continue;
        // Nobody is refused because a list cannot be read.
        api.log.warn('A policy list cannot be read', { room: rooms[i], error: String(list.reason) });
        api.delayedBackgroundCall(retryMs, () => void (known = undefined));
      }
      return new Rules(lists.flatMap((list) => (list.status === 'fulfilled' ? list.value : [])));
    };
    const rules = (): Promise<Rules> => (known ??= load());
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
      onNewEvent({ roomId, type }) {
        if (isRule(type) && ids.has(roomId)) known = undefined;
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
