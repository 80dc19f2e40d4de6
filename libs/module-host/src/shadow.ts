import type { ModuleApi } from '@rookery/module-api';
import { MatrixError } from '@rookery/matrix-types';
import { withEffects } from './effects.js';
import type { ModuleRegistry } from './registry.js';
import type { ModuleScope } from './scope.js';

/** What has an effect beside this server. */
const elsewhere = [
  'completeSsoLoginAsync',
  'completeSsoLogin',
  'sendHttpPushNotification',
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
  const quiet = withEffects(api, refuse);
  const others = Object.fromEntries(elsewhere.map((method) => [method, refuse(method)]));
  return {
    ...quiet,
    ...others,
    ...Object.fromEntries(providers.map((method) => [method, unused(method)])),
    federation: Object.freeze({ ...api.federation, putJson: refuse('federation.putJson') }),
  };
}
