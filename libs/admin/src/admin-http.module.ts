import { type DynamicModule, Module } from '@nestjs/common';
import type { Config } from '@rookery/platform';
import { AdminCredentialsModule, AdminUserMediaModule, AdminUsersModule } from './users/admin-users.module.js';

/** The admin API. */
@Module({})
export class AdminHttpModule {
  static with(config: Config): DynamicModule {
    return {
      module: AdminHttpModule,
      imports: [
        AdminUsersModule,
        ...(config.get('matrix_authentication_service.enabled') ? [] : [AdminCredentialsModule]),
        ...(config.get('enable_media_repo') ? [AdminUserMediaModule] : []),
      ],
    };
  }
}
