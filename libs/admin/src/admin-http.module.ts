import { type DynamicModule, Module } from '@nestjs/common';
import { servesMedia } from '@rookery/media';
import type { Config } from '@rookery/platform';
import { AdminOperationsModule } from './admin-operations.module.js';
import { AuthServiceModule } from './auth-service/auth-service.module.js';
import { AdminMediaModule } from './media/admin-media.module.js';
import { UsageReportModule } from './usage-report/usage-report.module.js';
import { AdminCredentialsModule, AdminUserMediaModule, AdminUsersModule } from './users/admin-users.module.js';

/** The admin API. */
@Module({})
export class AdminHttpModule {
  static with(config: Config): DynamicModule {
    return {
      module: AdminHttpModule,
      imports: [
        AdminOperationsModule,
        AdminUsersModule,
        UsageReportModule,
        ...(config.get('matrix_authentication_service.enabled') ? [AuthServiceModule] : [AdminCredentialsModule]),
        ...(servesMedia(config) ? [AdminMediaModule, AdminUserMediaModule] : []),
      ],
    };
  }
}
