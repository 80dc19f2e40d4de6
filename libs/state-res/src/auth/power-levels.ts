import type { RoomEvent, RoomVersionRules } from '@rookery/events';
import { isJsonObject } from '@rookery/matrix-types';
import type { AuthState } from './verdict.js';

const integerText = /^\s*[+-]?\d+\s*$/;

/**
 * Reads one power level as the room version writes it: an integer; up to version 9 also an integer in a string; up to 5
 * also a float, which is cut to its integer part.
 * @returns `undefined` for anything else
 * @spec rooms/v1#mroompower_levels-events-accept-values-as-strings
 */
export function parsePowerLevel(value: unknown, rules: RoomVersionRules): number | undefined {
  if (typeof value === 'number') {
    if (Number.isInteger(value)) return value;
    return rules.powerLevelValues === 'intStringFloat' && Number.isFinite(value) ? Math.trunc(value) : undefined;
  }
  if (typeof value !== 'string' || rules.powerLevelValues === 'int' || !integerText.test(value)) return undefined;
  const level = Number(value);
  return Number.isFinite(level) ? level : undefined;
}

/**
 * The users above every power level, or, before room version 12, the one user with level 100 while there is no power
 * levels event. Empty when an old create event names no creator.
 * @spec rooms/v12#authorization-rules
 */
export function creatorsOf(createEvent: RoomEvent): readonly string[] {
  const { rules, content, sender } = createEvent;
  if (!rules.creatorIsSender) return typeof content['creator'] === 'string' ? [content['creator']] : [];
  const additional = rules.privilegedCreators ? content['additional_creators'] : undefined;
  if (!Array.isArray(additional)) return [sender];
  return [...new Set([sender, ...additional.filter((id): id is string => typeof id === 'string')])];
}

/** Levels that a power levels event holds directly, with the value that counts when one is missing. */
export const scalarDefaults = {
  users_default: 0,
  events_default: 0,
  state_default: 50,
  ban: 50,
  redact: 50,
  kick: 50,
  invite: 0,
} as const;

/** A level that a power levels event holds directly. */
export type ScalarLevel = keyof typeof scalarDefaults;

/**
 * Who may do what in a room, with every default of the room version. Reading is lazy: making one costs next to nothing.
 * A value that the room version cannot read counts as missing.
 * @spec client-server-api#mroompower_levels
 */
export class PowerLevels {
  private readonly content: Readonly<Record<string, unknown>> | undefined;
  private readonly creators: readonly string[];

  /**
   * @param powerLevels the room's `m.room.power_levels` event, if it has one
   * @param create the room's `m.room.create` event; `undefined` only where the auth rules have refused already
   */
  constructor(
    powerLevels: RoomEvent | undefined,
    create: RoomEvent | undefined,
    private readonly rules: RoomVersionRules,
  ) {
    this.content = powerLevels?.content;
    this.creators = create === undefined ? [] : creatorsOf(create);
  }

  /** A user's level; `Infinity` for the creators of room version 12. */
  user(userId: string): number {
    const isCreator = this.creators.includes(userId);
    if (isCreator && this.rules.privilegedCreators) return Infinity;
    if (this.content === undefined) return isCreator ? 100 : 0;
    return this.entry('users', userId) ?? this.scalar('users_default');
  }

  /** The level needed to send an event. Membership events have rules of their own. */
  event(type: string, isState: boolean): number {
    return this.entry('events', type) ?? this.scalar(isState ? 'state_default' : 'events_default');
  }

  /** One of the levels that stand alone: `invite`, `kick`, `ban`, `redact` and the three defaults. */
  scalar(name: ScalarLevel): number {
    return this.read(this.content, name) ?? scalarDefaults[name];
  }

  /** The level needed to trigger a notification of this kind: `room` for `@room`. */
  notification(key: string): number {
    return this.entry('notifications', key) ?? 50;
  }

  private entry(map: 'users' | 'events' | 'notifications', key: string): number | undefined {
    const entries = this.content?.[map];
    return isJsonObject(entries) ? this.read(entries, key) : undefined;
  }

  private read(from: Readonly<Record<string, unknown>> | undefined, key: string): number | undefined {
    return from !== undefined && Object.hasOwn(from, key) ? parsePowerLevel(from[key], this.rules) : undefined;
  }
}

/** The power levels in a room's state; without a power levels event, or without any state, the defaults. */
export function powerLevelsOf(state: AuthState, rules: RoomVersionRules): PowerLevels {
  return new PowerLevels(state('m.room.power_levels', ''), state('m.room.create', ''), rules);
}
