import type { ModuleApi } from '@rookery/module-api';
import { MatrixError } from '@rookery/matrix-types';
import type { ModuleRegistry } from './registry.js';
import type { ModuleScope } from './scope.js';

/** What changes something that others see: accounts, rooms, other servers, people. Its own documents and tables are not among it. */
const effects = [
  'setUserAdmin',
  'setDisplayname',
  'registerUser',
  'registerDevice',
  'invalidateAccessToken',
  'recordUserExternalId',
  'forgetUserExternalId',
  'createLoginToken',
  'completeSsoLoginAsync',
  'completeSsoLogin',
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
  'sendHttpPushNotification',
  'sendMail',
  'setPushRuleAction',
] as const satisfies readonly (keyof ModuleApi)[];

const providers = [
  'registerIdentityProvider',
  'registerMediaStorageProvider',
  'registerOidcMappingProvider',
  'registerSamlMappingProvider',
] as const satisfies readonly (keyof ModuleApi)[];

/** The API of a module in shadow: what would have an effect is written down and fails, and what it would provide is not used. */
export function withoutEffect(
  api: ModuleApi,
  scope: ModuleScope,
  contribute: (method: string, contribution: (registry: ModuleRegistry) => void) => void,
): ModuleApi {
  const { module: name } = scope;
  const refuse = (method: string) => (): Promise<never> => {
    scope.log.info('A module in shadow would have called something', { module: name, method });
    return Promise.reject(MatrixError.forbidden(`Module ${name} runs in shadow: ${method} has no effect`));
  };
  const unused = (method: string) => (): void => contribute(method, (registry) => registry.notInShadow(name, method));
  const { accountDataManager, publicRoomListManager, federation } = api;
  return {
    ...api,
    ...Object.fromEntries(effects.map((method) => [method, refuse(method)])),
    ...Object.fromEntries(providers.map((method) => [method, unused(method)])),
    accountDataManager: Object.freeze({ ...accountDataManager, putGlobal: refuse('accountDataManager.putGlobal') }),
    publicRoomListManager: Object.freeze({
      ...publicRoomListManager,
      addRoomToPublicRoomList: refuse('publicRoomListManager.addRoomToPublicRoomList'),
      removeRoomFromPublicRoomList: refuse('publicRoomListManager.removeRoomFromPublicRoomList'),
    }),
    federation: Object.freeze({ ...federation, putJson: refuse('federation.putJson') }),
  };
}
