import type { ModuleEvent } from '@rookery/module-api';

/** What a rule is about. */
export type Kind = 'user' | 'server' | 'room';

/** More rules of a list with wildcards are not looked at. */
const maxGlobs = 10_000;
const maxEntityLength = 255;
/** Types of rules, with those that were in use before the specification had them. */
const types = /^(?:m\.policy\.rule|m\.room\.rule|org\.matrix\.mjolnir\.rule)\.(user|server|room)$/;
const bans: readonly unknown[] = ['m.ban', 'org.matrix.mjolnir.ban'];

/** Whether an event is a rule of a policy list. @spec client-server-api#moderation-policy-lists */
export const isRule = (type: string): boolean => types.test(type);

/** Whether a text fits a pattern of `*` and `?`, in time that grows with both and no faster. */
export function fits(pattern: string, text: string): boolean {
  let [p, t, star, mark] = [0, 0, -1, 0];
  while (t < text.length) {
    if (pattern[p] === '?' || (pattern[p] !== '*' && pattern[p] === text[t])) {
      p++;
      t++;
    } else if (pattern[p] === '*') {
      star = p++;
      mark = t;
    } else if (star >= 0) {
      p = star + 1;
      t = ++mark;
    } else return false;
  }
  while (pattern[p] === '*') p++;
  return p === pattern.length;
}

/** Names of hosts make no difference between large and small letters: a banned server is the same by all of them. */
const comparable = (kind: Kind, entity: string): string => (kind === 'server' ? entity.toLowerCase() : entity);

/** Who is banned by the rules of some lists. */
export class Rules {
  readonly #exact = { user: new Set<string>(), server: new Set<string>(), room: new Set<string>() };
  readonly #globs = { user: [] as string[], server: [] as string[], room: [] as string[] };

  constructor(events: Iterable<Pick<ModuleEvent, 'type' | 'content'>>) {
    for (const { type, content } of events) {
      const kind = types.exec(type)?.[1] as Kind | undefined;
      const { entity: said, recommendation } = content;
      if (!kind || typeof said !== 'string' || said === '' || said.length > maxEntityLength) continue;
      if (!bans.includes(recommendation)) continue;
      const entity = comparable(kind, said);
      if (!/[*?]/.test(entity)) this.#exact[kind].add(entity);
      else if (this.#globs[kind].length < maxGlobs) this.#globs[kind].push(entity);
    }
  }

  /** Whether a server, user or room is banned itself. */
  bans(kind: Kind, given: string): boolean {
    const entity = comparable(kind, given);
    return this.#exact[kind].has(entity) || this.#globs[kind].some((glob) => fits(glob, entity));
  }

  /** Whether a user is banned, or the server that they are on. */
  bansUser(userId: string): boolean {
    return this.bans('user', userId) || this.bans('server', userId.slice(userId.indexOf(':') + 1).replace(/:\d+$/, ''));
  }
}
