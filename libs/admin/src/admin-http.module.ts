import { Module } from '@nestjs/common';
import { AdminUsersModule } from './users/admin-users.module.js';

/** The admin API. */
@Module({ imports: [AdminUsersModule] })
export class AdminHttpModule {}
