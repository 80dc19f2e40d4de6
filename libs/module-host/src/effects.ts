import type { ModuleApi } from '@rookery/module-api';

/** What changes something that others see: accounts, rooms, people. A module's own documents and tables are not among it. */
const effects = [
  'setUserAdmin',
  'setDisplayname',
  'registerUser',
  'registerDevice',
  'invalidateAccessToken',
  'recordUserExternalId',
  'forgetUserExternalId',
  'createLoginToken',
  'storeRemote3pidAssociation',
  'deactivateUser',
  'createAndSendEventIntoRoom',
  'updateRoomMembership',
  'createRoom',
  'deleteRoom',
  'setRoomBlocked',
  'setRoomMediaQuarantined',
  'sendLocalOnlinePresenceTo',
  'setPresenceForUsers',
  'sendMail',
  'setPushRuleAction',
] as const satisfies readonly (keyof ModuleApi)[];

/** The same of the objects within a module's API. */
const innerEffects = {
  accountDataManager: ['putGlobal'],
  publicRoomListManager: ['addRoomToPublicRoomList', 'removeRoomFromPublicRoomList'],
} as const satisfies { readonly [Name in keyof ModuleApi]?: readonly (keyof ModuleApi[Name])[] };

/** All of them by their paths: `createRoom`, `accountDataManager.putGlobal`. */
export const effectPaths: readonly string[] = [
  ...effects,
  ...Object.entries(innerEffects).flatMap(([object, names]) => names.map((name) => `${object}.${name}`)),
];

/** Gives a module's API back with these calls made anew, each by its path. */
export function withEffects(
  api: ModuleApi,
  make: (path: string) => (...args: unknown[]) => Promise<unknown>,
): ModuleApi {
  const inner = Object.entries(innerEffects).map(([object, names]) => {
    const made = Object.fromEntries(names.map((name) => [name, make(`${object}.${name}`)]));
    return [object, Object.freeze({ ...(api[object as keyof typeof innerEffects] as object), ...made })] as const;
  });
  return { ...api, ...Object.fromEntries(effects.map((name) => [name, make(name)])), ...Object.fromEntries(inner) };
}
