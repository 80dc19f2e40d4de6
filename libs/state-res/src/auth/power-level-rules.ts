import { isJsonObject, isValidUserId, type JsonObject } from '@rookery/matrix-types';
import type { RoomEvent, RoomVersionRules } from '@rookery/events';
import type { AuthContext } from './membership-rules.js';
import { creatorsOf, parsePowerLevel, scalarDefaults } from './power-levels.js';
import { allowed, type AuthVerdict, refuse, refuseContent } from './verdict.js';

const scalars = Object.keys(scalarDefaults);

/** Verdicts on the shape of power levels, which no state can change and resolution asks about again and again. */
const shapes = new WeakMap<RoomEvent, AuthVerdict>();

/**
 * The rules for `m.room.power_levels`: nobody may grant or take away more than they have.
 * @spec rooms/v12#authorization-rules (rule 10; 9 in versions 6 to 11)
 */
export function checkPowerLevels(context: AuthContext): AuthVerdict {
  const { event, create, state, numbers } = context;
  const at = (rule: number): string => `${numbers.powerLevels}.${rule}`;
  let shape = shapes.get(event);
  if (shape === undefined) shapes.set(event, (shape = checkShape(event, at, numbers.powerLevelUsers)));
  if (!shape.allowed) return shape;

  let rule = numbers.powerLevelUsers + 1;
  if (event.rules.privilegedCreators) {
    const users = mapOf(event.content, 'users');
    if (users !== undefined && creatorsOf(create).some((id) => Object.hasOwn(users, id))) {
      return refuseContent(at(rule), 'The level of a creator cannot be set');
    }
    rule++;
  }
  const previous = state('m.room.power_levels', '')?.content;
  return previous === undefined ? allowed : checkChanges(context, previous, at, rule + 1);
}

function checkShape({ content, rules }: RoomEvent, at: Rule, usersRule: number): AuthVerdict {
  if (rules.powerLevelValues === 'int') {
    const isOdd = (name: string): boolean =>
      Object.hasOwn(content, name) && parsePowerLevel(content[name], rules) === undefined;
    const odd = scalars.find(isOdd);
    if (odd !== undefined) return refuseContent(at(1), `${odd} is not an integer`);
    for (const name of ['events', 'notifications']) {
      if (!isLevelMap(content, name, rules)) return refuseContent(at(2), `${name} is not an object of integers`);
    }
  }
  if (!isLevelMap(content, 'users', rules))
    return refuseContent(at(usersRule), 'users is not an object of power levels');
  if (!Object.keys(mapOf(content, 'users') ?? {}).every(isValidUserId)) {
    return refuseContent(at(usersRule), 'users has a key that is not a user id');
  }
  return allowed;
}

type Rule = (rule: number) => string;

function checkChanges(context: AuthContext, previous: Readonly<JsonObject>, at: Rule, first: number): AuthVerdict {
  const { event, levels } = context;
  const { rules, content: next } = event;
  const own = levels.user(event.sender);

  for (const name of scalars) {
    const change = changeOf(previous, next, name, rules);
    if (change === undefined) continue;
    if (exceeds(change.current, own)) return refuse(`${at(first)}.1`, `${name} is above the level of ${event.sender}`);
    if (change.isOdd || exceeds(change.value, own)) {
      return refuse(`${at(first)}.2`, `${event.sender} cannot set ${name} above their own level`);
    }
  }
  for (const map of rules.notificationLevelsChecked ? ['events', 'notifications'] : ['events']) {
    if (Object.hasOwn(next, map) && !isJsonObject(next[map]))
      return refuse(`${at(first + 2)}.1`, `${map} is not an object`);
    for (const [key, change] of changesOf(previous, next, map, rules)) {
      if (exceeds(change.current, own)) {
        return refuse(`${at(first + 1)}.1`, `${map} ${key} is above the level of ${event.sender}`);
      }
      if (change.isOdd || exceeds(change.value, own)) {
        return refuse(`${at(first + 2)}.1`, `${event.sender} cannot set ${map} ${key} above their own level`);
      }
    }
  }
  for (const [user, change] of changesOf(previous, next, 'users', rules)) {
    if (user !== event.sender && change.current !== undefined && change.current >= own) {
      return refuse(`${at(first + 3)}.1`, `${user} is not below ${event.sender}`);
    }
    if (change.isOdd || exceeds(change.value, own)) {
      return refuse(`${at(first + 4)}.1`, `${event.sender} cannot raise ${user} above their own level`);
    }
  }
  return allowed;
}

interface Change {
  readonly current: number | undefined;
  readonly value: number | undefined;
  /** The new value is there but cannot be read. Rejecting it keeps such values from spreading through old rooms. */
  readonly isOdd: boolean;
}

const exceeds = (level: number | undefined, own: number): boolean => level !== undefined && level > own;

function changeOf(
  previous: Readonly<JsonObject> | undefined,
  next: Readonly<JsonObject> | undefined,
  key: string,
  rules: RoomVersionRules,
): Change | undefined {
  const before = previous !== undefined && Object.hasOwn(previous, key) ? previous[key] : undefined;
  const after = next !== undefined && Object.hasOwn(next, key) ? next[key] : undefined;
  if (before === after) return undefined;
  const current = parsePowerLevel(before, rules);
  const value = parsePowerLevel(after, rules);
  const isOdd = after !== undefined && value === undefined;
  return current === value && !isOdd ? undefined : { current, value, isOdd };
}

function* changesOf(
  previous: Readonly<JsonObject>,
  next: Readonly<JsonObject>,
  map: string,
  rules: RoomVersionRules,
): Iterable<readonly [key: string, change: Change]> {
  const before = mapOf(previous, map);
  const after = mapOf(next, map);
  for (const key of Object.keys(after ?? {})) {
    const change = changeOf(before, after, key, rules);
    if (change !== undefined) yield [key, change];
  }
  for (const key of Object.keys(before ?? {})) {
    if (after !== undefined && Object.hasOwn(after, key)) continue;
    const change = changeOf(before, undefined, key, rules);
    if (change !== undefined) yield [key, change];
  }
}

function mapOf(content: Readonly<JsonObject>, name: string): JsonObject | undefined {
  const map = Object.hasOwn(content, name) ? content[name] : undefined;
  return isJsonObject(map) ? map : undefined;
}

/** Absent, or an object whose values the room version can read as power levels. */
function isLevelMap(content: Readonly<JsonObject>, name: string, rules: RoomVersionRules): boolean {
  if (!Object.hasOwn(content, name)) return true;
  const map = content[name];
  return isJsonObject(map) && Object.values(map).every((value) => parsePowerLevel(value, rules) !== undefined);
}
