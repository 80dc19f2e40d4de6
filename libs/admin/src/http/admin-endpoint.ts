import { applyDecorators } from '@nestjs/common';
import { Access, type AccessOptions } from '@rookery/http';

/** The path of an admin endpoint, for a Nest method decorator: `@Get(admin('v1', '/rooms/:roomId'))`. */
export const admin = (version: 'v1' | 'v2' | 'v3', path: string): string => `/_synapse/admin/${version}${path}`;

/**
 * Declares a route of the admin API, or a controller full of them: a valid token of a server administrator is needed.
 * Refusals: 401 `M_MISSING_TOKEN`, 401 `M_UNKNOWN_TOKEN`, 403 `M_FORBIDDEN`.
 */
export const AdminAccess = (
  options: Pick<AccessOptions, 'anyProcess' | 'bodyLimitBytes' | 'largeAnswer'> = {},
): MethodDecorator & ClassDecorator => applyDecorators(Access({ auth: 'required', admin: true, ...options }));
